// SPDX-License-Identifier: Apache-2.0
'use strict';
'require bquic.ask as ask';
'require bquic.common as common';
'require bquic.graph as graph';
'require bquic.scheduling as scheduling';
'require bquic.taking as taking';
'require rpc';
'require uci';
'require ui';
'require view';

const callCommit = rpc.declare({ object: 'uci', method: 'commit', params: [ 'config' ], reject: true });
const callPause = rpc.declare({ object: 'wifirr', method: 'pause', reject: true });
const callResume = rpc.declare({ object: 'wifirr', method: 'resume', reject: true });

const failed = (err) => ui.addNotification(null, E('p', {}, [ ask.wrong(err) ]));

/* Answers two questions: is it on, and does it help? */
return view.extend({
	handleSaveApply: null,
	handleSave: null,
	handleReset: null,

	load() {
		return Promise.all([ common.loadConfig('bquic'), common.loadConfig('wifirr') ]);
	},

	render([ haveBquic, haveWifirr ]) {
		this.before = {};
		this.off = [ 'gateway', 'relay' ].filter((type) => !common.enabled(uci.get('bquic', common.nameOf(type)))); /* until the router has told */
		this.started = {}; /* when it was switched on */
		this.working = 0; /* buttons */
		this.sharing = () => undefined;
		this.readable = [ ...haveBquic ? [ 'bquic' ] : [], ...haveWifirr ? [ 'wifirr' ] : [] ];
		this.waiting = E('em', { 'class': 'spinning' }, [ _('Waiting for an answer…') ]);
		this.cards = E('div', { 'class': 'bquic-cards', 'aria-live': 'off' });
		this.verdict = E('div');
		this.graphs = {
			throughput: graph.create(_('Traffic through gateway and relay'), 'bit/s', [ _('to clients'), _('from clients') ], 1e6),
			ack: graph.create(_('Data packets per acknowledgement'), '', [ _('now') ], 10),
			rtt: graph.create(_('Round-trip time'), 'ms', [ _('smoothed'), _('minimum') ], 20),
			clients: graph.create(_('WiFi clients'), '', [ _('with demand'), _('at full speed') ], 5),
			air: graph.create(_('Channel use'), '%', [ _('busy'), _('wasted (estimate)') ], 100)
		};
		this.ranges = [ [ false, _('5 minutes') ], [ true, _('12 hours') ] ].map(([ past, title ]) => E('button', {
			'type': 'button',
			'class': 'btn cbi-button',
			'aria-pressed': String(past),
			'click': (ev) => this.range(past, ev.currentTarget)
		}, [ title ]));
		this.group = E('p', { 'class': 'bquic-ranges', 'role': 'group', 'aria-label': _('Time that the graphs show'), 'hidden': '' }, [ ...this.ranges ]);
		Object.values(this.graphs).forEach((g) => g.show(true));
		ask.every(graph.every, () => this.refresh());
		ask.every(60, () => this.refreshPast());

		return common.page(_('Mesh acceleration'), _('The gateway and the relay carry traffic in bursts that fill WiFi frames; the scheduler makes crowded access points faster.'),
			common.mistakes('bquic'),
			common.mistakes('wifirr'),
			this.waiting,
			this.cards,
			this.verdict,
			this.group,
			E('div', { 'class': 'bquic-cards bquic-graphs' }, Object.values(this.graphs).map((g) => g.element)));
	},

	refresh() {
		return Promise.all([ ask.status(), ask.schedulers(), common.count() ]).then(([ bquic, wifirr ]) => scheduling.sharing(wifirr?.schedulers).then((sharing) => {
			this.sharing = sharing;
			this.off = bquic ? common.off(bquic) : this.off;

			return this.reread(ask.list(wifirr?.schedulers));
		}).then(() => {
			this.show(bquic, wifirr);
			this.draw(bquic ?? {}, wifirr ?? {});
			this.group.hidden = Object.values(this.graphs).every((g) => g.element.hidden);
		})).catch((err) => {
			/* what is not known is a gap in the graphs, or their time would stand still */
			Object.values(this.graphs).forEach((g) => g.push(null, null));
			throw err;
		});
	},

	/* Another page, or somebody else, may have changed the configuration: it is read again while the router does not do what it says. */
	reread(running) {
		const sections = uci.sections('wifirr', 'scheduler').filter((s) => s.device);
		const differ = {
			bquic: [ 'gateway', 'relay' ].some((type) => common.enabled(uci.get('bquic', common.nameOf(type))) == this.off.includes(type)),
			wifirr: running.some((st) => !sections.some((s) => s.device == st?.device)) ||
				sections.some((s) => common.enabled(s) != running.some((st) => st?.device == s.device) && !this.sharing(s))
		};

		return Promise.all(this.readable.filter((config) => differ[config] || common.unapplied(config) || !uci.sections(config).length)
			.map((config) => common.reread(config)));
	},

	range(past, button) {
		this.ranges.forEach((b) => b.setAttribute('aria-pressed', String(b === button)));
		Object.values(this.graphs).forEach((g) => g.show(past));
	},

	/* Merges samples of several daemons into one line: all end now, and missing values are skipped. */
	merge(lists, how) {
		const known = lists.filter((l) => Array.isArray(l) && l.length <= 2000);
		const length = Math.max(0, ...known.map((l) => l.length));

		return Array.from({ length }, (x, at) => {
			const values = known.map((l) => graph.sane(l[at - length + l.length])).filter((v) => v !== null);

			return values.length ? values.reduce(how) : null;
		});
	},

	refreshPast() {
		return Promise.all([ ask.history(), ask.schedulerHistory() ]).then(([ daemons, schedulers ]) => {
			const g = this.graphs;
			const bquic = (name, how) => this.merge([ daemons?.gateway?.[name], daemons?.relay?.[name] ], how);
			const wifirr = (name, how) => this.merge(ask.list(schedulers?.schedulers).map((s) => s[name]), how);
			const sum = (a, b) => a + b, most = (a, b) => Math.max(a, b), percent = (v) => v === null ? null : v / 10;

			g.throughput.setPast([ bquic('down_bps', sum), bquic('up_bps', sum) ]);
			g.ack.setPast([ bquic('packets_per_ack', most) ]);
			g.rtt.setPast([ bquic('smoothed_rtt_ms', most), bquic('min_rtt_ms', most) ]);
			g.clients.setPast([ wifirr('clients_with_demand', sum), wifirr('clients_served', sum) ]);
			g.air.setPast([ wifirr('busy_permille', most).map(percent), wifirr('wasted_estimate_permille', most).map(percent) ]);
		});
	},

	/* What a button does. Until it is done, no card is drawn anew: the button would look as if nobody had pressed it. */
	press(fn) {
		return ui.createHandlerFn(this, () => {
			this.working++;

			return fn().catch(failed).then(() => {
				this.working--;

				/* with the next poll, the page says that the router does not answer */
				return L.resolveDefault(this.refresh());
			});
		});
	},

	/*
	 * A switch that takes effect at once. Save & Apply would also apply pending
	 * changes of other pages, for example of the network. find(): the section's name.
	 */
	toggle(config, daemon, on, find) {
		return E('button', {
			'type': 'button',
			'class': 'btn cbi-button ' + (on ? 'cbi-button-neutral' : 'cbi-button-positive'),
			'disabled': L.hasViewPermission() ? null : '',
			'click': this.press(() => common.count().then(() => {
				if (common.unapplied(config))
					throw new Error(_('Other changes to these settings are saved but not applied: apply or revert them first.'));

				/* an anonymous section has another name after each change of its options */
				uci.unload(config);

				return uci.load(config);
			}).then(() => {
				const section = find();

				if (!section)
					throw new Error(_('These settings were changed elsewhere: reload this page to see them.'));
				/* set() does nothing to a section that does not exist */
				if (!uci.get(config, section))
					uci.add(config, section, section);
				uci.set(config, section, 'enabled', on ? '0' : '1');

				return uci.save();
			}).then(() => callCommit(config)).then(() => { this.started[daemon] = on ? NaN : Date.now(); }))
		}, [ on ? _('Switch off') : _('Switch on') ]);
	},

	card(title, state, kind, button, ...content) {
		const name = E('span', {}, [ title ].flat());

		/* there is one of each on every card */
		button?.setAttribute('aria-label', `${button.textContent}: ${name.textContent}`);

		return E('div', { 'class': 'bquic-card' }, [
			E('h3', {}, [ name, button ?? '' ]),
			E('p', { 'class': `bquic-state ${kind}` }, [ state ]),
			...content
		]);
	},

	/* No daemon answers. about: what it does. */
	silent(title, config, daemon, on, button, about, device) {
		return !on ? this.card(title, _('off'), '', button, E('p', {}, [ about ]))
			: Date.now() - this.started[daemon] < common.starts ? this.card(title, _('is starting'), '', button)
				: this.card(title, _('no answer'), 'bad', button, ...common.silent(config, device));
	},

	uptime(seconds) {
		return _('running for %t').format(Math.floor(graph.sane(seconds) ?? 0));
	},

	/* What a gateway has refused since its start, by reason. */
	refusals(st) {
		const counts = [
			[ _('all places are taken'), st.refused?.full ],
			[ _('too many from one address'), st.refused?.source ],
			[ _('too many handshakes'), st.refused?.rate ],
			[ _('memory is short'), st.refused?.memory ],
			[ _('ended, because memory was short'), st.refused?.shed ],
			[ _('too many requests'), st.refused?.requests ],
			[ _('no valid token'), st.tunnels?.denied ]
		].filter(([ , n ]) => n > 0).map(([ why, n ]) => `${why}: ${Math.floor(n)}`);

		return counts.length ? E('p', {}, [ _('Refused since the start (%s).').format(counts.join(', ')) ]) : '';
	},

	gatewayCard(st) {
		const on = !this.off.includes('gateway');
		const button = this.toggle('bquic', 'gateway', on, () => common.nameOf('gateway'));

		if (!st)
			return this.silent(_('Gateway'), 'bquic', 'gateway', on, button, _('Serves sites and relays over HTTP/3.'));

		const ends = !on || st.stopping, away = ask.list(st.origins).filter((o) => o.up === false);

		return this.card(_('Gateway'), ends ? _('is stopping') : this.uptime(st.uptime_s), ends ? '' : 'on', button,
			E('p', {}, [ _('Listens on %s.').format(common.text(st.listen)) ]),
			E('p', {}, [ _('Connections: %d by QUIC, %d by TCP; %d by QUIC since the start.').format(st.connections_live ?? 0, st.connections_tcp ?? 0, st.connections_total ?? 0) ]),
			E('p', {}, [ st.tunnels ? _('TCP connections for relays: %d.').format(st.tunnels.open ?? 0) : _('Serves no relay: there is no token.') ]),
			away.length ? common.alert(_('Servers of sites that did not answer the last request: %s.').format(away.map((o) => common.text(o.url)).join(', '))) : '',
			st.tunnels?.uplink === false ? common.alert(_('Its uplink does not work: relays are told to use another gateway.')) : '',
			this.refusals(st),
			...common.refused(st),
			...common.warned(st));
	},

	relayCard(st) {
		const find = () => common.nameOf('relay'), name = find();
		const on = !this.off.includes('relay');
		const complete = (uci.get('bquic', name, 'gateway') || common.upstreams().length) && uci.get('bquic', name, 'token');
		const button = on || complete || !L.hasViewPermission() ? this.toggle('bquic', 'relay', on, find)
			: E('a', { 'class': 'btn cbi-button', 'href': L.url('admin/services/bquic/relay') }, [ _('Set up') ]);

		if (!st)
			return this.silent(_('Relay'), 'bquic', 'relay', on, button, _('Carries the TCP connections of this node’s clients to a gateway.'));

		const [ state, kind ] = on && !st.stopping ? taking.state(st) : [ _('is stopping'), '' ];

		return this.card(_('Relay'), state, kind, button,
			E('p', {}, [ common.text(st.gateway) ]),
			E('p', {}, [ _('Connections: %d carried, %d made directly by the relay.').format(st.carried?.now ?? 0, st.direct?.now ?? 0) ]),
			st.refused > 0 ? E('p', {}, [ _('Direct, because the gateway refused the target: %d since the start.').format(st.refused) ]) : '',
			st.state != 'up' && st.last_error ? E('p', {}, [ common.text(st.last_error) ]) : '',
			...ask.list(st.gateways).filter((g) => g.state == 'up' && g.error).map((g) => common.alert(`${common.text(g.address)}: ${common.text(g.error)}`)),
			...taking.why(st),
			...common.refused(st));
	},

	schedulerCards(answer) {
		if (answer === undefined)
			return [ this.card(_('Scheduler'), _('not installed'), '', null, ...common.missing('wifirr-sched')) ];

		const running = ask.list(answer?.schedulers);
		const sections = uci.sections('wifirr', 'scheduler').filter((s) => s.device);

		if (!sections.length)
			return [ this.card(_('Scheduler'), _('off'), '',
				E('a', { 'class': 'btn cbi-button', 'href': L.url('admin/services/bquic/scheduler') }, [ _('Set up') ]),
				E('p', {}, [ _('Makes a crowded access point faster.') ])) ];

		return sections.map((s) => {
			const st = running.find((r) => r?.device == s.device);
			const on = common.unapplied('wifirr') ? !!st : common.enabled(s);
			const [ before, after ] = _('Scheduler on %s').split('%s');
			const title = [ before, E('span', { 'class': 'bquic-device' }, [ s.device ]), after ];
			const button = this.toggle('wifirr', s.device, on, () => uci.sections('wifirr', 'scheduler').find((now) => now.device == s.device)?.['.name']);
			const windows = st?.contention?.windows === true && !st.paused && !st.throttling; /* larger ones shrink step by step */
			const other = st ? undefined : this.sharing(s);

			if (other) {
				const [ state, why ] = scheduling.together(other);

				return this.card(title, state, '', button, why);
			}
			if (!st)
				return this.silent(title, 'wifirr', s.device, on, button, _('Makes a crowded access point faster.'), s.device);

			return this.card(title,
				!on ? _('is stopping') : st.present === false ? _('waits for its device, which does not exist now') : st.paused ? _('paused') : st.throttling ? _('clients take turns') : windows ? _('clients wait longer before they send (larger windows)')
					: st.engaged ? _('would let clients take turns (dry run)') : _('watching: everyone at full speed'),
				!on || st.present === false || st.paused ? '' : 'on', button,
				/* the daemon's text: the decision, its value and its threshold */
				E('p', {}, [ E('strong', {}, [ _('Why:') ]), ' ', scheduling.reason(windows ? st.contention.why : st.why) ]),
				...scheduling.gains(st),
				E('p', {}, [ _('Clients: %d, %d of them with demand. Turns: at most %d at a time.').format(st.clients ?? 0, st.clients_with_demand ?? 0, st.active_max ?? 0) ]),
				st.refused ? E('p', {}, [ _('Uses %s, because: %s').format(common.text(st.backend), common.text(st.refused)) ]) : '',
				...common.refused(st),
				...common.warned(st),
				E('button', {
					'type': 'button',
					'class': 'btn cbi-button',
					'disabled': L.hasViewPermission() ? null : '',
					'title': _('To see the difference, pause: no client is held back then.'),
					'click': this.press(() => st.paused ? callResume() : callPause())
				}, [ st.paused ? _('Resume all schedulers') : _('Pause all schedulers') ]));
		});
	},

	show(bquic, wifirr) {
		if (this.working)
			return;

		const cards = [
			...bquic === undefined ? [ this.card(_('Gateway and relay'), _('not installed'), '', null, ...common.missing('bquic-gateway')) ]
				: [ this.gatewayCard(bquic?.gateway), this.relayCard(bquic?.relay) ],
			...this.schedulerCards(wifirr)
		];

		this.waiting.remove();
		cards.forEach((card, i) => {
			const old = this.cards.children[i];

			if (old)
				common.renew(old, [ ...card.childNodes ]);
			else
				this.cards.append(card);
		});
		while (this.cards.children.length > cards.length)
			this.cards.lastElementChild.remove();
	},

	/*
	 * The growth of a daemon's counters since an answer a second or more ago, and the
	 * seconds between both (at), by the daemon's clock. The arrival and display of answers
	 * say nothing about that, because polls may come close together. null: unknown.
	 */
	change(name, st, down, up) {
		const was = this.before[name];
		const count = (...values) => values.reduce((n, v) => n + (graph.sane(v) ?? 0), 0);
		const now = {
			at: count(st?.uptime_s),
			down: count(down),
			up: count(up),
			acked: count(st?.live?.packets_acked, st?.live?.packets_received),
			acks: count(st?.live?.acks_received, st?.live?.acks_sent)
		};

		/* a daemon that had not answered, or was restarted, has no jump from zero */
		if (!was || !st || now.at < was.at) {
			this.before[name] = st ? now : null;
			return null;
		}
		if (now.at - was.at < 1)
			return null;
		this.before[name] = now;

		return Object.fromEntries(Object.keys(now).map((key) => [ key, Math.max(0, now[key] - was[key]) ]));
	},

	draw(bquic, wifirr) {
		const g = this.graphs;
		const live = bquic.gateway?.live ?? {}, relay = bquic.relay?.live ?? {};
		const changes = [
			this.change('gateway', bquic.gateway, bquic.gateway?.sent, bquic.gateway?.received),
			this.change('relay', bquic.relay, bquic.relay?.carried?.down_bytes, bquic.relay?.carried?.up_bytes)
		].filter((c) => c);
		const sum = (f) => changes.reduce((n, c) => n + f(c), 0);
		const rate = (name) => changes.length ? sum((c) => 8 * c[name] / c.at) : null;
		const busiest = live.connections ? live : relay;
		const schedulers = ask.list(wifirr.schedulers);
		const total = (f) => schedulers.length ? schedulers.reduce((n, s) => n + (f(s) ?? 0), 0) : null;
		const most = (name) => {
			const all = schedulers.map((s) => graph.sane(s.channel?.[name])).filter((v) => v !== null);

			return all.length ? Math.max(...all) / 10 : null;
		};

		g.throughput.push(rate('down'), rate('up'));
		const acks = sum((c) => c.acks);
		const ratio = acks > 0 ? sum((c) => c.acked) / acks : null;
		g.ack.push(ratio);
		g.rtt.push(busiest.connections ? busiest.smoothed_rtt_ms : null, busiest.connections ? busiest.min_rtt_ms : null);
		g.clients.push(total((s) => graph.sane(s.clients_with_demand)),
			total((s) => s.throttling ? s.active?.length : graph.sane(s.clients_with_demand)));
		g.air.push(most('busy_permille'), most('wasted_estimate_permille'));

		/* stock QUIC acknowledges every second packet: RFC 9000, section 13.2.2 */
		const lines = [];
		if (ratio > 2)
			lines.push(_('Acknowledgements: one for every %s packets, where stock QUIC sends one for every 2. That is %d %% fewer frames that compete with the data.').format(graph.format(ratio), 100 * (1 - 2 / ratio)));
		for (const s of schedulers)
			if (s.throttling && Array.isArray(s.active))
				lines.push(_('%s: clients that have their turn now: %d of %d with demand.').format(common.text(s.device), s.active.length, s.clients_with_demand ?? 0));
		common.renew(this.verdict, lines.map((line) => E('p', {}, [ line ])));
	}
});
