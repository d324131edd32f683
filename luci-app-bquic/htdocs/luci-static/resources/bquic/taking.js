// SPDX-License-Identifier: Apache-2.0
'use strict';
'require baseclass';
'require bquic.ask as ask';
'require bquic.common as common';
'require bquic.graph as graph';

/* Whether a running relay takes its clients' connections, and why not. */

const mbit = (bits) => graph.format(+bits / 1e6);

/* The rates of a relay's processor and path, and the decision, which has no effect if the relay takes nothing for another reason. */
function processor(p, able) {
	const follows = {
		all: able ? _('Connections are carried.') : '',
		measuring: _('Connections go direct while the processor is measured.'),
		busy: _('Connections go direct, because the processor is busy.'),
		slow: +p?.path_bps > 0 ? _('TCP goes direct, which is faster.') : _('Connections go direct until the path has shown its rate.')
	}[p?.takes == 'all' ? 'all' : p?.why];

	if (follows === undefined || !(+p.carries_bps > 0))
		return follows ?? '';

	return [ _('The processor carries %s Mbit/s.').format(mbit(p.carries_bps)), +p.path_bps > 0 ? _('The path has shown %s Mbit/s.').format(mbit(p.path_bps)) : '', follows ].filter((x) => x).join(' ');
}

/* What its comparison with direct connections says for certain. */
function compared(proof) {
	const says = {
		faster: _('Carried connections are faster than direct ones here.'),
		slower: _('Carried connections are slower than direct ones here.'),
		silent: _('More of the carried connections than of the direct ones get no answer.')
	}[proof?.verdict];

	return says ? [
		proof.verdict == 'faster' ? E('p', {}, [ says ]) : common.alert(says),
		E('p', {}, [ E('a', { 'href': L.url('admin/services/bquic/proof') }, [ _('Does it help?') ]) ])
	] : [];
}

/* Why it sees none of its clients' connections, although a gateway answers. */
function unseen(st) {
	const reasons = {
		kernel: _('this kernel cannot take bridged connections (is kmod-nft-bridge installed?)'),
		off: _('their router may be beyond the bridge, but bridged clients are switched off'),
		'no port': _('no port of the bridge is known to lead to a router: name it under Uplinks'),
		'no device': _('one of the devices does not exist'),
		elsewhere: _('their connections use other devices'),
		apart: _('routing rules of this node send them another way than its own connections'),
		missing: _('those that it takes do not reach it; other rules of this node refuse their packets, change their marks, or do not track them')
	};

	return st?.unseen ? [ common.alert(_('The relay sees none of its clients’ connections: %s.').format(reasons[st.unseen.why] ?? common.text(st.unseen.reason))) ] : [];
}

/* What else makes clients' connections slow, or go direct. */
function troubles(st) {
	const full = st?.limit > 0 && (+st.carried?.now || 0) + (+st.direct?.now || 0) >= st.limit;

	return [
		full ? _('All %d places for connections are taken: others go direct.').format(st.limit) : '',
		st?.late > 0 ? _('Connections that waited in vain for the gateway’s answer, and went direct after 1.5 s: %d since the start.').format(st.late) : ''
	].filter((x) => x).map((x) => E('p', {}, [ x ]));
}

/* Flows of UDP, if it has carried any. */
function flows(udp) {
	return +udp?.total > 0 ? [ E('p', {}, [ _('UDP flows: %d now, %d since the start; datagrams lost: %d.').format(udp.now, udp.total, udp.lost) ]) ] : [];
}

return baseclass.extend({
	/* "Direct when slower" holds. */
	spared: () => _('Carried connections were slower, or got no answer: all new ones but a few go direct, until that is no longer certain.'),

	/* The state in words, and its colour. */
	state(st) {
		if (st.state != 'up')
			return [ ask.list(st.gateways).some((g) => g.state == 'no uplink') ? _('no gateway has an uplink: connections go direct') : _('no gateway answers: connections go direct'), 'bad' ];
		if (st.taking === false || st.proof?.verdict == 'spared')
			return [ _('connected to the gateway, but new connections go direct'), '' ];

		return [ _('connected to the gateway'), 'on' ];
	},

	/* What it has measured and seen, as nodes. */
	why(st) {
		const able = st?.state == 'up' && st.taking !== false;

		return [ E('p', {}, [ st?.proof?.verdict == 'spared' ? this.spared() : processor(st?.processor, able) ]),
			...flows(st?.udp), ...compared(st?.proof), ...troubles(st), ...unseen(st) ];
	}
});
