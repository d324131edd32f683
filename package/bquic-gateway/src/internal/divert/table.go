// SPDX-License-Identifier: Apache-2.0

package divert

import (
	"errors"
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// A table is an nftables table that its netlink socket owns while it is open.
type table struct {
	conn     *netlink.Conn
	byTarget bool // queue with the xtables target
	zones    bool // conntrack has zones
	bridge   bool // the bridges' table exists, too
}

const flagOwner = 2 // NFT_TABLE_F_OWNER

// tableBuffer bounds the size of a transaction, in bytes: a rule takes about 300. It takes no memory.
const tableBuffer = 4 << 20

func openTable() (*table, error) {
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return nil, err
	}
	_ = conn.SetWriteBuffer(tableBuffer)
	var t transaction
	t.add(unix.NFPROTO_INET, unix.NFT_MSG_NEWTABLE, netlink.Create, text(unix.NFTA_TABLE_NAME, tableName), num(unix.NFTA_TABLE_FLAGS, flagOwner))
	if err := t.commit(conn); err != nil {
		conn.Close()
		switch {
		case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EINVAL):
			return nil, fmt.Errorf("nftables: this kernel does not support tables with an owner, which Linux has since 5.12: %w", err)
		case errors.Is(err, unix.EPERM):
			return nil, fmt.Errorf("nftables: another process owns the table %s, or this one is not allowed to make tables: %w", tableName, err)
		}
		return nil, fmt.Errorf("nftables: cannot make the table %s: %w", tableName, err)
	}
	var zones transaction
	zones.replace(unix.NFPROTO_INET, []chain{leaving}, []rule{joined(leaving.name, zoned, pass)})
	return &table{conn: conn, zones: zones.commit(conn) == nil}, nil
}

// owned reports whether the table exists, and so a process that owns it.
func owned() bool {
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return false
	}
	defer conn.Close()
	var t transaction
	t.add(unix.NFPROTO_INET, unix.NFT_MSG_GETTABLE, 0, text(unix.NFTA_TABLE_NAME, tableName))
	_, err = conn.Execute(t.messages[0])
	return err == nil
}

// apply installs the rules in one transaction.
func (t *table) apply(r *Rules) error {
	err := t.replace(r)
	if !t.byTarget && (errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EOPNOTSUPP)) {
		t.byTarget = true
		byTarget := t.replace(r)
		if byTarget == nil {
			return nil
		}
		t.byTarget = false
		err = fmt.Errorf("%w; with the target of xtables: %w", err, byTarget)
	}
	if err != nil {
		return fmt.Errorf("nftables: cannot change the table %s: %w", tableName, err)
	}
	return nil
}

// openBridge makes the bridges' table, with its maps and the rules for noted connections. It fails if the kernel lacks
// an expression, for example without nft_meta_bridge. apply, which changes both tables at once, then omits this one.
func (t *table) openBridge() error {
	var batch transaction
	batch.add(unix.NFPROTO_BRIDGE, unix.NFT_MSG_NEWTABLE, netlink.Create, text(unix.NFTA_TABLE_NAME, tableName), num(unix.NFTA_TABLE_FLAGS, flagOwner))
	for i, n := range notes {
		batch.add(unix.NFPROTO_BRIDGE, unix.NFT_MSG_NEWSET, netlink.Create,
			text(unix.NFTA_SET_TABLE, tableName), text(unix.NFTA_SET_NAME, n.name), num(unix.NFTA_SET_ID, uint32(i+1)),
			num(unix.NFTA_SET_FLAGS, unix.NFT_SET_MAP|unix.NFT_SET_TIMEOUT|unix.NFT_SET_EVAL),
			num(unix.NFTA_SET_KEY_TYPE, n.keyType()), num(unix.NFTA_SET_KEY_LEN, n.keySize()),
			num(unix.NFTA_SET_DATA_TYPE, 9), // nft's data type of a hardware address
			num(unix.NFTA_SET_DATA_LEN, 6),
			milliseconds(unix.NFTA_SET_TIMEOUT, synTimeout),
			nested(unix.NFTA_SET_DESC, num(unix.NFTA_SET_DESC_SIZE, maxNoted)))
	}
	noticing := Rules{Bridged: true}
	batch.replace(unix.NFPROTO_BRIDGE, bridgeChains, noticing.bridgeRules(false))
	err := batch.commit(t.conn)
	t.bridge = err == nil
	return err
}

// forget removes the note of a bridged connection. ENOENT: there is none.
func (t *table) forget(c connection) error {
	var batch transaction
	batch.note(unix.NFT_MSG_DELSETELEM, 0, c)
	return batch.commit(t.conn)
}

// renew gives the note of a bridged connection another hardware address, at once: without a note, the client's next frame would reach the target.
func (t *table) renew(c connection, mac [6]byte) error {
	var batch transaction
	batch.note(unix.NFT_MSG_DELSETELEM, 0, c)
	batch.note(unix.NFT_MSG_NEWSETELEM, netlink.Create, c, value(unix.NFTA_SET_ELEM_DATA, mac[:]), milliseconds(unix.NFTA_SET_ELEM_TIMEOUT, flowTimeout))
	return batch.commit(t.conn)
}

// note adds a change of a bridged connection's note.
func (t *transaction) note(kind int, flags netlink.HeaderFlags, c connection, content ...netlink.Attribute) {
	n := &notes[0]
	if c.client.Addr().Is6() {
		n = &notes[1]
	}
	t.add(unix.NFPROTO_BRIDGE, kind, flags, text(unix.NFTA_SET_ELEM_LIST_TABLE, tableName), text(unix.NFTA_SET_ELEM_LIST_SET, n.name),
		nested(unix.NFTA_SET_ELEM_LIST_ELEMENTS, nested(unix.NFTA_LIST_ELEM, append(content, value(unix.NFTA_SET_ELEM_KEY, c.key()))...)))
}

func (t *table) replace(r *Rules) error {
	var batch transaction
	batch.replace(unix.NFPROTO_INET, r.chains(), r.rules(t.byTarget, t.zones))
	if t.bridge {
		batch.replace(unix.NFPROTO_BRIDGE, bridgeChains, r.bridgeRules(t.byTarget))
	}
	return batch.commit(t.conn)
}

// replace replaces all rules of a family's table, and makes its chains.
func (t *transaction) replace(family byte, chains []chain, rules []rule) {
	t.add(family, unix.NFT_MSG_DELRULE, 0, text(unix.NFTA_RULE_TABLE, tableName))
	for _, c := range chains {
		attrs := []netlink.Attribute{text(unix.NFTA_CHAIN_TABLE, tableName), text(unix.NFTA_CHAIN_NAME, c.name)}
		if c.kind != "" {
			attrs = append(attrs,
				nested(unix.NFTA_CHAIN_HOOK, num(unix.NFTA_HOOK_HOOKNUM, c.hook), num(unix.NFTA_HOOK_PRIORITY, uint32(c.prio))),
				num(unix.NFTA_CHAIN_POLICY, verdictAccept), text(unix.NFTA_CHAIN_TYPE, c.kind))
		}
		t.add(family, unix.NFT_MSG_NEWCHAIN, netlink.Create, attrs...)
	}
	for _, rule := range rules {
		var steps []netlink.Attribute
		for _, e := range rule.exprs {
			steps = append(steps, nested(unix.NFTA_LIST_ELEM, text(unix.NFTA_EXPR_NAME, e.name), nested(unix.NFTA_EXPR_DATA, e.attrs...)))
		}
		t.add(family, unix.NFT_MSG_NEWRULE, netlink.Create|netlink.Append,
			text(unix.NFTA_RULE_TABLE, tableName), text(unix.NFTA_RULE_CHAIN, rule.chain), nested(unix.NFTA_RULE_EXPRESSIONS, steps...))
	}
}

// close removes the tables.
func (t *table) close() error {
	var batch transaction
	batch.add(unix.NFPROTO_INET, unix.NFT_MSG_DELTABLE, 0, text(unix.NFTA_TABLE_NAME, tableName))
	if t.bridge {
		batch.add(unix.NFPROTO_BRIDGE, unix.NFT_MSG_DELTABLE, 0, text(unix.NFTA_TABLE_NAME, tableName))
	}
	return errors.Join(batch.commit(t.conn), t.conn.Close())
}
