// SPDX-License-Identifier: Apache-2.0

package divert

import (
	"errors"
	"fmt"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// A table is ours as long as its netlink socket is open.
type table struct {
	conn     *nftables.Conn
	inet     *nftables.Table
	byTarget bool // queue by xtables' target
	chains   map[string]*nftables.Chain
}

const flagOwner = 2 // NFT_TABLE_F_OWNER of include/uapi/linux/netfilter/nf_tables.h

func openTable() (*table, error) {
	var socket *netlink.Conn
	conn, err := nftables.New(nftables.AsLasting(), nftables.WithSockOptions(func(c *netlink.Conn) error {
		socket = c
		return nil
	}))
	if err != nil {
		return nil, err
	}
	t := &table{
		conn:   conn,
		inet:   &nftables.Table{Name: TableName, Family: nftables.TableFamilyINet},
		chains: make(map[string]*nftables.Chain),
	}
	if err := createOwned(socket); err != nil {
		conn.CloseLasting()
		switch {
		case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EINVAL):
			return nil, fmt.Errorf("nftables: this kernel knows no tables with an owner, which Linux has since 5.12: %w", err)
		case errors.Is(err, unix.EPERM):
			return nil, fmt.Errorf("nftables: the table %s is another process's, or this one may make none: %w", TableName, err)
		}
		return nil, fmt.Errorf("nftables: cannot make the table %s: %w", TableName, err)
	}
	return t, nil
}

// createOwned makes the table in a batch of its own: the library gives tables no flags.
func createOwned(socket *netlink.Conn) error {
	b, err := netlink.MarshalAttributes([]netlink.Attribute{
		{Type: unix.NFTA_TABLE_NAME, Data: append([]byte(TableName), 0)},
		{Type: unix.NFTA_TABLE_FLAGS, Data: []byte{0, 0, 0, flagOwner}},
	})
	if err != nil {
		return err
	}
	batch := func(kind netlink.HeaderType) netlink.Message {
		return netlink.Message{
			Header: netlink.Header{Type: kind, Flags: netlink.Request},
			Data:   []byte{unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, unix.NFNL_SUBSYS_NFTABLES},
		}
	}
	_, err = socket.SendMessages([]netlink.Message{
		batch(unix.NFNL_MSG_BATCH_BEGIN),
		{
			Header: netlink.Header{
				Type:  netlink.HeaderType(unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWTABLE),
				Flags: netlink.Request | netlink.Acknowledge | netlink.Create,
			},
			Data: append([]byte{unix.NFPROTO_INET, unix.NFNETLINK_V0, 0, 0}, b...),
		},
		batch(unix.NFNL_MSG_BATCH_END),
	})
	if err == nil {
		_, err = socket.Receive() // the acknowledgement, or the error
	}
	return err
}

// apply makes the table as rules have it, in one transaction.
func (t *table) apply(r *Rules) error {
	err := t.replace(r)
	if !t.byTarget && (errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EOPNOTSUPP)) {
		t.byTarget = true
		if t.replace(r) == nil {
			return nil
		}
		t.byTarget = false
	}
	if err != nil {
		return fmt.Errorf("nftables: cannot change the table %s: %w", TableName, err)
	}
	return nil
}

func (t *table) replace(r *Rules) error {
	t.conn.FlushTable(t.inet)
	accept := nftables.ChainPolicyAccept
	for _, c := range r.chains() {
		nc := &nftables.Chain{Name: c.name, Table: t.inet}
		if c.hook != nil {
			nc.Type, nc.Hooknum, nc.Priority, nc.Policy = c.kind, c.hook, nftables.ChainPriorityRef(nftables.ChainPriority(c.prio)), &accept
		}
		t.chains[c.name] = t.conn.AddChain(nc)
	}
	for _, rule := range r.rules(t.byTarget) {
		t.conn.AddRule(&nftables.Rule{Table: t.inet, Chain: t.chains[rule.chain], Exprs: rule.exprs})
	}
	return t.conn.Flush()
}

// close removes the table.
func (t *table) close() error {
	t.conn.DelTable(t.inet)
	err := t.conn.Flush()
	return errors.Join(err, t.conn.CloseLasting())
}
