// SPDX-License-Identifier: Apache-2.0
'use strict';
'require bquic.ask as ask';
'require bquic.common as common';
'require bquic.scheduling as scheduling';
'require form';
'require view';

/* An SSID or a host name is anyone's to choose, and a string may end as markup
   in a dropdown: a node does not. */
function label(text) {
	return E('span', {}, [ text ]);
}

return view.extend({
	load() {
		return Promise.all([
			common.loadForm('wifirr'),
			ask.accessPoints().then((aps) => ask.stations(aps).then((stations) => [ aps, stations ])),
			ask.devices(),
			ask.hostNames()
		]);
	},

	render([ have, [ aps, stations ], devices, names ]) {
		if (!have)
			return common.noConfig(this, _('Scheduler'), 'wifirr-sched');

		const m = new form.Map('wifirr', _('Scheduler'), _('The scheduler makes a crowded access point faster. Clients that aggregate frames wait longer before they send, so they collide less; others are served a few at a time, in turn. On a quiet access point it does nothing.'));
		const s = m.section(form.TypedSection, 'scheduler');
		let o;

		s.anonymous = true;
		s.addremove = true;
		s.addbtntitle = _('Add a device');
		s.tab('general', _('General'));
		s.tab('exempt', _('Exemptions'));
		s.tab('advanced', _('Advanced'));

		o = s.taboption('general', form.Flag, 'enabled', _('Enabled'), _('Starts the scheduler on this device.'));
		o.rmempty = false;

		o = s.taboption('general', form.Value, 'device', _('Device'), _('An interface of the radio’s access points; the scheduler finds the others. On a router in front of the access points, the device that sends to the clients.'));
		for (const ap of aps)
			o.value(ap.device, label(`${ap.device} (${ap.ssid ?? '?'})`));
		/* not a radio: it is in front of the access points */
		for (const device of aps.length ? [] : devices)
			o.value(device, label(device));
		o.validate = (id, value) => /^[A-Za-z0-9_.-]{1,15}$/.test(value) && value != '.' && value != '..' || _('Must be the name of a network device.');
		o.rmempty = false;

		o = s.taboption('general', form.ListValue, 'engage', _('Engage'), _('When the scheduler acts. “always” gives turns at once when there are more clients than are served at a time, and leaves windows alone.'));
		o.value('auto', _('when it can help'));
		o.value('always', _('always'));
		o.value('dry-run', _('never: only show what it would do'));
		o.default = 'auto';

		o = s.taboption('advanced', form.ListValue, 'mode', _('Who takes turns'), _('Which clients are served in turn while turns are taken.'));
		o.value('backlog', _('clients with demand'));
		o.value('paper', _('all clients, in fixed groups (as in the paper)'));
		o.default = 'backlog';

		o = s.taboption('general', form.Value, 'active', _('Clients at a time'), _('How many clients are served at full speed at a time (K).'));
		o.datatype = 'and(uinteger,range(1,512))';
		o.placeholder = _('1 (htb: 3, paper: 5)');

		o = s.taboption('general', form.Value, 'slot', _('Turn (ms)'), _('How long a client’s turn lasts (T).'));
		o.datatype = 'and(uinteger,range(10,60000))';
		o.placeholder = _('4800 (htb: 2400, paper: 1600)');

		o = s.taboption('general', form.Value, 'trickle', _('Trickle (kbit/s)'), _('Rate of a client that waits for its turn; only with the backend htb.'));
		o.datatype = 'and(uinteger,range(1,1000000))';
		o.placeholder = _('20 (paper: 100)');

		for (const [ name, title, doc ] of [
			[ 'always', _('Never throttled'), _('Addresses of clients that always have full speed and take no turns.') ],
			[ 'ignore', _('Ignored'), _('Addresses of clients that are never throttled, and whose demand does not count either.') ]
		]) {
			o = s.taboption('exempt', form.DynamicList, name, title, doc);
			o.datatype = 'or(macaddr,ipaddr("nomask"))';
			for (const station of stations) {
				const host = names.get(station.mac.toLowerCase());
				o.value(station.mac, label(host ? `${station.mac} (${host})` : station.mac));
			}
		}
		o = s.taboption('exempt', form.Flag, 'exempt_voice', _('Voice'), _('Packets marked as voice (DSCP EF and VOICE-ADMIT) are never throttled; only with the backend htb.'));

		o = s.taboption('advanced', form.ListValue, 'backend', _('Backend'), _('How waiting clients are slowed down.'));
		o.value('auto', _('airtime where the driver supports it, otherwise htb'));
		o.value('airtime', _('airtime weights (ath9k, ath10k, mt76)'));
		o.value('htb', _('rate limits (htb), any device'));
		o.default = 'auto';

		o = s.taboption('advanced', form.Value, 'rate', _('Link rate (kbit/s)'), _('Rate of the link; empty: 90 % of the stations’ expected throughput. Only with the backend htb.'));
		o.datatype = 'and(uinteger,range(100,10000000))';

		o = s.taboption('advanced', form.Value, 'weights', _('Airtime weights'), _('Weights of active and of waiting clients; all others get a part of the first. Only with the backend airtime.'));
		o.placeholder = '384,1';
		o.validate = (id, value) => !value || /^\d{1,5},\d{1,5}$/.test(value) && value.split(',').every((n) => n >= 1 && n <= 65535)
			|| _('Must be two numbers from 1 to 65535 with a comma between them.');

		o = s.taboption('advanced', form.ListValue, 'windows', _('Contention windows'), _('Whether clients have to wait longer before they send while many of them contend.'));
		o.value('auto', _('by how many contend'));
		o.value('off', _('left alone'));
		o.default = 'auto';

		o = s.taboption('advanced', form.Value, 'rts', _('RTS threshold (bytes)'), _('Frames larger than this are sent with RTS in a crowd of clients of 802.11n or later; afterwards the radio has its own threshold again.'));
		o.value('auto', _('500 where collisions cost more than RTS does'));
		o.value('off', _('left alone'));
		o.datatype = 'or("auto","off",and(uinteger,range(0,65535)))';
		o.placeholder = 'auto';

		o = s.taboption('advanced', form.Value, 'demand_bytes', _('Demand: waiting (bytes)'), _('A client has demand when more than this waits for it.'));
		o.datatype = 'and(uinteger,range(0,100000000))';
		o.placeholder = '3000';

		o = s.taboption('advanced', form.Value, 'demand_rate', _('Demand: delivered (kbit/s)'), _('A client also has demand when more than this is delivered to it.'));
		o.datatype = 'and(uinteger,range(0,1000000))';
		o.placeholder = '60';

		o = s.taboption('advanced', form.Value, 'busy_threshold', _('Busy channel (%)'), _('The scheduler engages only when the channel is busier than this; ignored where the driver does not report it.'));
		o.datatype = 'and(uinteger,range(0,100))';
		o.placeholder = '50';

		o = s.taboption('advanced', form.Value, 'engage_delay', _('Delay (ms)'), _('How long a crowd must be over before the scheduler releases; where the driver does not report how busy the channel is, also how long it must last before it engages.'));
		o.datatype = 'and(uinteger,range(0,3600000))';
		o.placeholder = '1000';

		o = s.taboption('advanced', form.ListValue, 'match', _('Clients are told apart by'), _('What counts as one client.'));
		o.value('mac', _('MAC address'));
		o.value('ip', _('IP address (behind one next hop)'));
		o.default = 'mac';

		o = s.taboption('advanced', form.ListValue, 'verbose', _('Log'), _('How much detail goes to the system log.'));
		o.value('0', _('what matters'));
		o.value('1', _('more'));
		o.value('2', _('every change'));
		o.default = '0';

		return common.form(this, m, 'scheduler', () => ask.schedulers().then((answer) => {
			const running = ask.list(answer?.schedulers);

			return scheduling.sharing(running).then((sharing) => (s) => running.find((st) => st?.device == s.device) ?? (sharing(s) && { instead: scheduling.together(sharing(s)) }));
		}));
	}
});
