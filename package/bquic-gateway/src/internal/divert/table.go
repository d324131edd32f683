// SPDX-License-Identifier: Apache-2.0

package divert

import (
	"errors"
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// A table is ours as long as its netlink socket is open.
type table struct {
	conn     *netlink.Conn
	byTarget bool // queue by xtables' target
}

const flagOwner = 2 // NFT_TABLE_F_OWNER

func openTable() (*table, error) {
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return nil, err
	}
	var t transaction
	t.add(unix.NFT_MSG_NEWTABLE, netlink.Create, text(unix.NFTA_TABLE_NAME, TableName), num(unix.NFTA_TABLE_FLAGS, flagOwner))
	if err := t.commit(conn); err != nil {
		conn.Close()
		switch {
		case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EINVAL):
			return nil, fmt.Errorf("nftables: this kernel knows no tables with an owner, which Linux has since 5.12: %w", err)
		case errors.Is(err, unix.EPERM):
			return nil, fmt.Errorf("nftables: the table %s is another process's, or this one may make none: %w", TableName, err)
		}
		return nil, fmt.Errorf("nftables: cannot make the table %s: %w", TableName, err)
	}
	return &table{conn: conn}, nil
}

// apply makes the table as rules have it, in one transaction.
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
		return fmt.Errorf("nftables: cannot change the table %s: %w", TableName, err)
	}
	return nil
}

func (t *table) replace(r *Rules) error {
	var batch transaction
	batch.add(unix.NFT_MSG_DELRULE, 0, text(unix.NFTA_RULE_TABLE, TableName))
	for _, c := range r.chains() {
		attrs := []netlink.Attribute{text(unix.NFTA_CHAIN_TABLE, TableName), text(unix.NFTA_CHAIN_NAME, c.name)}
		if c.kind != "" {
			attrs = append(attrs,
				nested(unix.NFTA_CHAIN_HOOK, num(unix.NFTA_HOOK_HOOKNUM, c.hook), num(unix.NFTA_HOOK_PRIORITY, uint32(c.prio))),
				num(unix.NFTA_CHAIN_POLICY, verdictAccept), text(unix.NFTA_CHAIN_TYPE, c.kind))
		}
		batch.add(unix.NFT_MSG_NEWCHAIN, netlink.Create, attrs...)
	}
	for _, rule := range r.rules(t.byTarget) {
		var steps []netlink.Attribute
		for _, e := range rule.exprs {
			steps = append(steps, nested(unix.NFTA_LIST_ELEM, text(unix.NFTA_EXPR_NAME, e.name), nested(unix.NFTA_EXPR_DATA, e.attrs...)))
		}
		batch.add(unix.NFT_MSG_NEWRULE, netlink.Create|netlink.Append,
			text(unix.NFTA_RULE_TABLE, TableName), text(unix.NFTA_RULE_CHAIN, rule.chain), nested(unix.NFTA_RULE_EXPRESSIONS, steps...))
	}
	return batch.commit(t.conn)
}

// close removes the table.
func (t *table) close() error {
	var batch transaction
	batch.add(unix.NFT_MSG_DELTABLE, 0, text(unix.NFTA_TABLE_NAME, TableName))
	return errors.Join(batch.commit(t.conn), t.conn.Close())
}
