// SPDX-License-Identifier: Apache-2.0
'use strict';
'require baseclass';
'require bquic.ask as ask';
'require bquic.common as common';
'require uci';

/* What the schedulers say, and which of them serves a device. */

/* The scheduler's reasons, as wifirrd prints them. With another _ these are not translated. */
function reasons(_) {
	return [
		_('clients with demand: %d, more than %d are needed'),
		_('channel busy %d permille of the time, more than %d is needed'),
		_('needed for %d of %d ms'),
		_('not needed any more for %d of %d ms'),
		_('clients: %d, more than %d'),
		_('clients with demand: %d, more than %d'),
		_('clients with demand: %d, channel busy %d permille of the time, more than %d'),
		_('paused'),
		_('clients aggregate frames: their contention windows do more than turns'),
		_('everybody is served for some seconds, to see whether turns deliver more'),
		_('turns delivered %d kbit/s, serving everybody %d kbit/s'),
		_('airtime weights have no effect on this driver'),
		_('windows are left alone'),
		_('%d kbit/s were delivered with larger windows, %d with own ones'),
		_('for some seconds, to see whether larger ones deliver more'),
		_('clients that contend: %d, %d or more are needed'),
		_('clients that aggregate frames: %d, more than %d are needed'),
		_('channel busy for %d.%d %% of the time, more than %d.%d %% are needed'),
		_('%d.%d %% of the frames to clients are lost, %d.%d %% or more are needed'),
		_('clients that contend: %d')
	];
}

/* Map from a device to its radio, as far as iwinfo has told them. */
const radios = new Map();

return baseclass.extend({
	reasons: reasons,

	/* A scheduler's reason in the user's language; other texts unchanged. */
	reason(text) {
		const said = common.text(text), translated = reasons(_);

		for (const [ i, english ] of reasons((s) => s).entries()) {
			const pattern = english.replace('%%', '%').replace('%%', '%').replace(/[.*+?^${}()|[\]\\]/g, '\\$&').replace(/%d/g, '(-?\\d+)');
			const values = said.match(new RegExp(`^${pattern}$`));

			if (values)
				return translated[i].format(...values.slice(1));
		}

		return said;
	},

	/*
	 * The measured gains of a scheduler's levers here, from its trials: a line
	 * for each lever tried. In permille; 1000: as much with it as without.
	 */
	gains(st) {
		const percent = (permille) => Math.round((Math.max(permille, 0) - 1000) / 10); /* the bound of a mean may be below 0 */
		const means = (g) => g.on ? g.low > 1000 ? _('used.') : _('used until it is certain that it gains too little.')
			: g.high < 1000 ? _('not used: more is delivered without it.') : _('not used until it is certain that it gains.');
		const seen = (g) => g.high <= 1000 ? _('Delivered with it: %d %% less (%d to %d), trials: %d.').format(-percent(g.permille), -percent(g.high), -percent(g.low), g.trials)
			: g.low >= 1000 ? _('Delivered with it: %d %% more (%d to %d), trials: %d.').format(percent(g.permille), percent(g.low), percent(g.high), g.trials)
				: _('Delivered with it: between %d %% less and %d %% more, trials: %d.').format(-percent(g.low), percent(g.high), g.trials);

		return [ [ _('Larger windows:'), st?.contention?.gain ], [ _('RTS:'), st?.contention?.rts_gain ], [ _('Turns:'), st?.gain ] ]
			.filter(([ , g ]) => g?.trials > 0 && [ g.permille, g.low, g.high ].every(Number.isInteger))
			.map(([ name, g ]) => E('p', {}, [ E('strong', {}, [ name ]), ' ', means(g), ' ', seen(g) ]));
	},

	/*
	 * The init script starts one daemon for a radio, and skips further sections on it. Resolves to
	 * a function that returns the device whose running scheduler serves a skipped section, too.
	 */
	sharing(schedulers) {
		const running = new Set(ask.list(schedulers).map((st) => st.device));
		const sections = uci.sections('wifirr', 'scheduler').filter((s) => common.enabled(s) && s.device && s.match != 'ip');
		const serving = sections.filter((s) => s.backend != 'htb' && running.has(s.device));
		const asked = serving.length && serving.length < sections.length ? sections.filter((s) => !radios.has(s.device)) : [];

		return Promise.all(asked.map(({ device }) => ask.wifi(device).then((info) => {
			if (typeof info?.phy == 'string' && info.phy)
				radios.set(device, info.phy);
		}))).then(() => ({ device }) => radios.has(device) && !running.has(device) && sections.some((s) => s.device == device)
			? serving.find((s) => radios.get(s.device) == radios.get(device))?.device : undefined);
	},

	/* The state and the explanation of a section that is served by the scheduler of this device. */
	together(device) {
		return [ _('no scheduler beside that of %s').format(device), E('p', {}, [ _('Their WiFi hardware has one scheduler, which serves all access points of its radio. The settings for this device have no effect.') ]) ];
	}
});
