// SPDX-License-Identifier: Apache-2.0
'use strict';
'require bquic.ask as ask';
'require bquic.common as common';
'require bquic.graph as graph';
'require bquic.table as table';
'require uci';
'require view';

const HISTORY = 60; /* seconds in a strip */
const SLOW = 5; /* seconds that an answer may take */

/* A picture of the rotation: which client had a turn when. */
return view.extend({
	handleSaveApply: null,
	handleSave: null,
	handleReset: null,

	render() {
		this.strips = new Map();
		this.drawn = Infinity;
		this.signals = {};
		this.names = new Map();
		this.note = E('div', { 'aria-live': 'polite' });
		this.table = table.create([
			{ title: _('Name') },
			{ title: _('Address') },
			{ title: _('Device'), class: 'bquic-where' },
			{ title: _('Signal'), number: true },
			{ title: _('State') },
			{ title: _('Waiting'), number: true },
			{ title: _('Rate'), number: true },
			{ title: _('Time active'), number: true },
			{ title: _('Last minute') }
		], _('No clients yet.'));

		/* what changes slowly, and may be slow to query */
		ask.every(10, () => this.refreshStations());
		ask.every(1, () => this.refresh());

		return common.page(_('Clients'), _('The scheduler’s view of the WiFi clients. A client in a green row has its turn.'), this.note, this.table.element);
	},

	refreshStations() {
		return Promise.all([
			ask.hostNames().then((names) => { this.names = names; }),
			ask.accessPoints().then((aps) => ask.stations(aps)).then((stations) => {
				for (const station of stations)
					this.signals[station.mac.toLowerCase()] = station.signal;
			}),
			common.reread('wifirr').then(() => { this.wanted = uci.sections('wifirr', 'scheduler').find((s) => common.enabled(s) && s.device); })
		]);
	},

	strip(key, active) {
		const had = this.strips.get(key) ?? { turns: [], node: graph.svg('svg', { 'class': 'bquic-strip', 'viewBox': `0 0 ${HISTORY} 10`, 'preserveAspectRatio': 'none', 'aria-hidden': 'true' }) };

		this.strips.set(key, had);
		/* unless the page was hidden, the router was slow */
		had.turns.push(...Array(this.missed).fill(this.missed < SLOW && active), active);
		had.turns.splice(0, had.turns.length - HISTORY);
		had.node.replaceChildren(...had.turns.flatMap((on, i) => on
			? [ graph.svg('rect', { 'x': HISTORY - had.turns.length + i, 'y': 0, 'width': 1.05, 'height': 10 }) ] : []));

		return had.node;
	},

	state(c) {
		if (c.neighbour)
			return _('neighbour (mesh or WDS)');
		if (c.ignored)
			return _('ignored');
		if (c.always)
			return _('never throttled');

		switch (c.state) {
		case 'active':
			return _('active now');
		case 'soon':
		case 'next':
			return _('next');
		case 'waiting':
			return _('waiting');
		case 'light':
			return _('little to do');
		default:
			return c.demand ? _('full speed') : _('idle');
		}
	},

	refresh() {
		return ask.clients().then((answer) => {
			if (!answer) {
				common.renew(this.note, [ E('div', { 'class': 'alert-message warning' }, [ ...answer === null ? common.silent('wifirr') : common.missing('wifirr-sched') ]) ]);
				this.table.update([]);

				return;
			}

			const schedulers = ask.list(answer.schedulers).filter((s) => Array.isArray(s.clients));

			common.renew(this.note, schedulers.length ? [] : [ E('div', { 'class': 'alert-message notice' }, [
				E('p', {}, [ _('No scheduler is running.') ]),
				...this.wanted ? common.silent('wifirr', this.wanted.device)
					: [ E('p', {}, [ E('a', { 'href': L.url('admin/services/bquic/scheduler') }, [ _('Set up') ]) ]) ]
			]) ]);

			/* seconds of which nothing is known, for example while the page was hidden */
			this.missed = Math.min(HISTORY, Math.max(0, Math.round((Date.now() - this.drawn) / 1000) - 1));
			this.drawn = Date.now();

			/* what a client is on; unless that is known, the scheduler's device */
			const where = (s, c) => common.text(c.interface ?? s.device);

			/* ordered by address, not by state: the turn moves, the rows stay */
			const rows = schedulers.flatMap((s) => ask.list(s.clients).map((c) => {
				const address = common.text(c.client);
				const key = `${common.text(s.device)} ${address}`;
				const active = c.state == 'active';
				const signal = this.signals[address.toLowerCase()];
				const share = graph.sane(c.active_permille);

				return {
					key: key,
					active: active,
					cells: [
						this.names.get(address.toLowerCase()),
						address,
						where(s, c),
						typeof signal == 'number' ? `${signal} dBm` : null,
						this.state(c),
						graph.format(graph.sane(c.waiting_bytes), 'B'),
						graph.format(graph.sane(c.rate_kbit) === null ? null : c.rate_kbit * 1000, 'bit/s'),
						graph.format(share === null ? null : share / 10, '%'),
						this.strip(key, active)
					]
				};
			})).sort((a, b) => a.key < b.key ? -1 : 1);
			const present = new Set(rows.map((row) => row.key));

			this.table.element.classList.toggle('bquic-one', new Set(schedulers.flatMap((s) => ask.list(s.clients).map((c) => where(s, c)))).size < 2);
			this.table.update(rows);
			for (const key of this.strips.keys())
				if (!present.has(key))
					this.strips.delete(key);
		});
	}
});
