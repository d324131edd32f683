// SPDX-License-Identifier: Apache-2.0
'use strict';
'require baseclass';
'require form';
'require rpc';
'require uci';

/* Profiles of the transport on pages of settings: the choice of one, and the operator's own. */

const callBquicProfiles = rpc.declare({ object: 'bquic', method: 'profiles', reject: true });

/* [ option, datatype, unit, explanation ] of `config profile`, as in `bquic check`. */
function parameters() {
	return [
		[ 'ack_packets', 'and(uinteger,range(0,1000))', _('packets'), _('As receiver: packets per acknowledgement; 0: no limit. Without this option, those up to “ask_peer” have no effect.') ],
		[ 'ack_delay', 'and(uinteger,range(1,1000))', _('ms'), _('Longest delay of an acknowledgement.') ],
		[ 'ack_rtt_divisor', 'and(uinteger,range(0,64))', '', _('Also limits this delay to the time chosen below, divided by this number; 0: no such limit.') ],
		[ 'ack_rtt', [ 'smoothed', 'min', 'queue' ], '', _('The smoothed round-trip time, the minimum one, or the difference of the two, which is the queueing delay.') ],
		[ 'ack_after', 'and(uinteger,range(0,1000000))', _('packets'), _('Packets at the start of a connection that are acknowledged as in stock quic-go.') ],
		[ 'ack_reordering', 'and(uinteger,range(0,1000))', _('packets'), _('A gap triggers an immediate acknowledgement once this many later packets have arrived; 0 and 1: with the first.') ],
		[ 'ask_peer', 'bool', '', _('As sender: asks a peer that supports ACK_FREQUENCY to acknowledge in the same way.') ],
		[ 'burst_packets', 'or("unlimited",and(uinteger,range(1,10000)))', _('packets'), _('Packets that may be sent back to back; unlimited: no pacing.') ],
		[ 'congestion', [ 'reno', 'rate' ], '', _('Congestion control: NewReno, or NewReno with a model of the path, which ignores the slow-start options.') ],
		[ 'slow_start_divisor', 'and(uinteger,range(1,64))', '', _('Slow start ends when the round-trip time has risen by the minimum one divided by this number.') ],
		[ 'slow_start_min', 'and(uinteger,range(1,1000))', _('ms'), _('Lower limit of that rise.') ],
		[ 'slow_start_max', 'and(uinteger,range(1,1000))', _('ms'), _('Upper limit of that rise: it bounds the queue that slow start may build.') ],
		[ 'loss_eighths', 'and(uinteger,range(1,64))', _('RTT/8'), _('A packet counts as lost when it has been missing for one round-trip time plus this time.') ],
		[ 'loss_packets', 'and(uinteger,range(3,1000))', _('packets'), _('A packet counts as lost when one sent this many packets later has arrived.') ],
		[ 'window_updates', 'bool', '', _('Sends flow-control window updates with every acknowledgement.') ],
		[ 'fast_pmtu', 'bool', '', _('Probes the largest packet size first instead of searching for it.') ],
		[ 'gso', 'bool', '', _('Passes packets to the kernel in batches (generic segmentation offload).') ]
	];
}

/* The built-in profiles, with the gateway package's descriptions. */
function profileTexts() {
	return {
		'standard': _('Unmodified quic-go.'),
		'bquic': _('For clients behind 802.11n or later links.'),
		'bquic-2019': _('Exactly what the 2019 paper measured.'),
		'bquic-thesis': _('As in the paper, with the thresholds that the thesis raised in addition.'),
		'modquic': _('Unmodified quic-go, with a window update on every acknowledgement.')
	};
}

/*
 * The names among which an option chooses: those that the router tells, more, and what the file has, which
 * is not among the others while the router tells nothing: LuCI would save the first choice in its place.
 */
function names(known, option, ...more) {
	return new Set([ ...known.profiles.map((p) => p.name), ...more, ...uci.sections('bquic').map((s) => s[option]).filter((name) => name) ]);
}

/* The values of parameters that a profile does not set. */
function inherited(known, base) {
	const found = known.profiles.find((p) => p.name == base);

	return Object.assign({}, known.stock, found?.values);
}

return baseclass.extend({
	texts: profileTexts,

	/* The gateway package's profiles; empty if it is not installed. */
	known() {
		return L.resolveDefault(callBquicProfiles(), null).then((known) => ({
			profiles: Array.isArray(known?.profiles) ? known.profiles : [],
			stock: known?.stock ?? {}
		}));
	},

	/* A choice among the built-in profiles and those in the file. */
	option(section, name, known, title, description) {
		const o = section.taboption('advanced', form.ListValue, name, title, description);
		const own = uci.sections('bquic', 'profile').filter((s) => !s['.anonymous']).map((s) => s['.name']);

		o.default = 'bquic';
		for (const p of names(known, name, 'bquic', ...own)) {
			const text = profileTexts()[p] ?? known.profiles.find((k) => k.name == p)?.doc;

			o.value(p, text ? `${p}: ${text}` : p);
		}
	},

	/* The operator's own profiles: every parameter with its unit and its value when left empty. */
	section(map, known) {
		const s = map.section(form.GridSection, 'profile', _('Profiles of your own'),
			_('A profile changes how connections acknowledge, burst and recover. The built-in ones need no entry here; measure before you trust one of your own.'));
		let o;

		s.addremove = true;
		s.nodescriptions = true;
		s.modaltitle = (id) => _('Profile %s').format(id);
		s.sectiontitle = (id) => id;

		o = s.option(form.ListValue, 'base', _('Based on'), _('Profile that provides the values not given here.'));
		o.default = 'standard';
		for (const p of names(known, 'base', 'standard'))
			o.value(p);

		for (const [ name, type, unit, doc ] of parameters()) {
			const words = type == 'bool' ? [ [ '1', _('on') ], [ '0', _('off') ] ] : Array.isArray(type) ? type.map((word) => [ word ]) : null;
			const kind = words ? form.ListValue : form.Value;

			o = s.option(kind, name, unit ? `${name} (${unit})` : name, doc);
			if (words)
				for (const word of [ [ '', _('same as base') ], ...words ])
					o.value(...word);
			else
				o.datatype = type;
			o.optional = true;
			o.modalonly = true;
			o.renderWidget = function(id, index, value) {
				this.placeholder = _('same as base: %s').format(inherited(known, uci.get('bquic', id, 'base') ?? 'standard')[name] ?? '–');
				return kind.prototype.renderWidget.call(this, id, index, value);
			};
		}
	}
});
