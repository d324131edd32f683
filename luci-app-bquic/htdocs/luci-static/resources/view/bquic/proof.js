// SPDX-License-Identifier: Apache-2.0
'use strict';
'require bquic.ask as ask';
'require bquic.common as common';
'require bquic.graph as graph';
'require bquic.scheduling as scheduling';
'require bquic.table as table';
'require bquic.taking as taking';
'require view';

const WIDTH = 200, HEIGHT = 20; /* picture of an interval */
const LEAST = Math.log(1.25), MOST = Math.log(5); /* least and largest range to each side */

/* A change with its interval in the daemon's form, or null: relative changes, -1 or more. */
function change(c) {
	const good = [ c?.low, c?.change, c?.high ].every((v) => typeof v == 'number' && isFinite(v) && v >= -1);

	return good && c.low <= c.high ? c : null;
}

const count = (value) => graph.sane(value) ?? 0;
const percent = (part) => Math.round(100 * part);

/* What a scheduler's trials have shown, in the form of "bquic report --json". */
const trials = (s) => ({ device: s.device, gain: s.gain ?? null, contention: { gain: s.contention?.gain ?? null, rts_gain: s.contention?.rts_gain ?? null } });

/* A number and its unit stay on one line. */
const whole = (text) => text.replace(/(\d) (%|MB)/g, '$1\u00a0$2');

/* A change in words: those for less, for more, and for what is not certain. */
function words(c, less, more, unsure) {
	if (!c)
		return _('too few to compare');
	if (c.high < 0)
		return less.format(percent(-c.change), percent(-c.high), percent(-c.low));
	if (c.low > 0)
		return more.format(percent(c.change), percent(c.low), percent(c.high));

	return unsure.format(percent(-c.low), percent(c.high));
}

/* A change of a time: less is better. */
const faster = (c) => words(c, _('%d %% faster (95 %%: %d to %d)'), _('%d %% slower (95 %%: %d to %d)'),
	_('not certainly faster or slower (95 %%: %d %% faster to %d %% slower)'));

/* A change of a rate: more is better. */
const more = (c) => words(c, _('%d %% less (95 %%: %d to %d)'), _('%d %% more (95 %%: %d to %d)'),
	_('not certainly more or less (95 %%: %d %% less to %d %% more)'));

/* One is certainly less, and the other certainly more. */
const opposed = (a, b) => !!a && !!b && (a.high < 0 && b.low > 0 || a.low > 0 && b.high < 0);

const logarithm = (part) => Math.log(Math.max(1 + part, 1e-3));

/* The range of the pictures of these lines, so that all have the same scale. */
function scale(lines) {
	return Math.min(MOST, Math.max(LEAST, ...lines.map((l) => change(l.complete)).filter((c) => c)
		.flatMap((c) => [ Math.abs(logarithm(c.low)), Math.abs(logarithm(c.high)) ])));
}

/* The interval as a bar, faster to the left, in logarithms. */
function picture(c, name, most) {
	const node = graph.svg('svg', { 'class': 'bquic-interval', 'viewBox': `0 0 ${WIDTH} ${HEIGHT}`, 'preserveAspectRatio': 'none', 'role': 'img', 'aria-label': `${name}: ${faster(c)}` });
	const at = (part) => WIDTH / 2 * (1 + Math.max(-1, Math.min(1, logarithm(part) / most)));

	node.append(graph.svg('line', { 'x1': WIDTH / 2, 'x2': WIDTH / 2, 'y1': 0, 'y2': HEIGHT }));
	if (c) {
		const x = at(c.change);

		node.append(graph.svg('rect', {
			'class': c.high < 0 ? 'good' : c.low > 0 ? 'bad' : 'open',
			'x': Math.min(at(c.low), WIDTH - 2).toFixed(1), 'width': Math.max(2, at(c.high) - at(c.low)).toFixed(1), 'y': 5, 'height': HEIGHT - 10
		}), graph.svg('line', { 'class': 'now', 'x1': x.toFixed(1), 'x2': x.toFixed(1), 'y1': 2, 'y2': HEIGHT - 2 }));
	}

	return node;
}

function size(line) {
	const mb = (bytes) => graph.format(count(bytes) / 1e6);

	if (!count(line.to))
		return _('more than %s MB').format(mb(line.from));

	return count(line.from) ? _('%s to %s MB').format(mb(line.from), mb(line.to)) : _('less than %s MB').format(mb(line.to));
}

/* The kind of a session. */
function kind(line) {
	return { http1: _('Pages by HTTP/1'), http2: _('Pages by HTTP/2') }[line.class] ?? _('Other applications');
}

/* The daemon's quarters of a day are in UTC; summer time counts. */
function hours(line) {
	const local = (hour) => {
		const at = new Date();

		at.setUTCHours(Math.min(count(hour), 24), 0);

		return at.toLocaleTimeString([], { hour: '2-digit', minute: '2-digit' });
	};

	return `${local(line.from)} – ${local(line.to)}`;
}

/* Does the relay help, compared with connections drawn to go direct? */
return view.extend({
	handleSaveApply: null,
	handleSave: null,
	handleReset: null,

	render() {
		const long = [ { title: _('First byte') }, { title: _('Throughput') } ];
		const create = (first, more) => table.create([ { title: first }, { title: _('faster | slower') }, { title: _('Completed') }, ...more,
			{ title: _('Carried'), number: true }, { title: _('Direct'), number: true } ], _('Nothing yet.'));

		this.verdict = E('div', { 'class': 'bquic-card', 'aria-live': 'polite' });
		this.kinds = create(_('Application'), []);
		this.sizes = create(_('Size'), long);
		this.quarters = create(_('Time of day'), long);
		this.clients = create(_('Client'), []);
		this.scheduler = E('div');
		this.exported = null;
		this.button = E('button', {
			'type': 'button',
			'class': 'btn cbi-button cbi-button-action',
			'title': _('To share with others: without addresses.'),
			'disabled': '',
			'click': () => this.save()
		}, [ _('Export') ]);
		this.tables = E('div', {}, [
			E('h3', {}, [ _('By application') ]), this.kinds.element,
			E('h3', {}, [ _('By size') ]), this.sizes.element,
			E('h3', {}, [ _('By time of day') ]), this.quarters.element,
			E('h3', {}, [ _('By clients') ]), this.clients.element
		]);
		this.relay = E('div', { 'hidden': '' }, [
			E('div', { 'class': 'cbi-map-descr' }, [
				_('Some new connections are drawn at random to go direct, and those that the relay carries are compared with them. The bars show where the truth is in 95 of 100 cases.')
			]),
			this.verdict,
			this.tables
		]);
		ask.every(10, () => this.refresh());

		return E([], [
			common.style(),
			E('h2', {}, [ _('Does it help?') ]),
			this.relay,
			this.scheduler,
			E('p', { 'class': 'bquic-export' }, [ this.button ])
		]);
	},

	refresh() {
		return Promise.all([
			ask.status(),
			ask.schedulers()
		]).then(([ bquic, wifirr ]) => {
			this.silent = bquic && common.off(bquic).includes('relay') ? _('The relay is off.') : _('The relay does not answer.');
			this.show(bquic?.relay ?? null);
			this.showScheduler(wifirr);
			this.button.disabled = !this.exported && !this.schedulers.length;

			/* for a package that is not installed, nothing is shown */
			this.relay.hidden = bquic === undefined;
		});
	},

	show(relay) {
		const proof = relay?.proof && typeof relay.proof == 'object' ? relay.proof : null;
		const most = scale([ proof?.overall ?? {}, proof?.pages ?? {}, ...[ 'kinds', 'sizes', 'quarters', 'clients' ].flatMap((name) => ask.list(proof?.[name])) ]);
		const rows = (name, title, short) => ask.list(proof?.[name]).map((l, i) => this.row(l, title(l), `${name}${i}`, most, short));
		const all = proof?.overall && typeof proof.overall == 'object' ? proof.overall : {};

		this.tables.hidden = !proof;
		common.renew(this.verdict, this.words(relay, proof, all).map((line) => E('p', {}, [ whole(line) ])));
		this.kinds.update(rows('kinds', kind, true));
		this.sizes.update([
			...count(all.carried) + count(all.direct) ? [ this.row(all, _('All sizes'), 'all', most) ] : [],
			...rows('sizes', size)
		]);
		this.quarters.update(rows('quarters', hours));
		this.clients.update(rows('clients', (l) => l.prefix ? common.text(l.prefix) : _('all others'), true));

		this.exported = proof ? {
			version: relay.version,
			profile: relay.profile,
			...proof,
			clients: ask.list(proof.clients).map((l) => Object.fromEntries(Object.entries(l).filter(([ key ]) => key != 'prefix')))
		} : null;
	},

	row(line, name, key, most, short) {
		const c = change(line.complete);
		const cells = [ name, picture(c, name, most), faster(c) ];

		if (!short)
			cells.push(faster(change(line.first_byte)), more(change(line.throughput)));

		return { key, cells: [ ...cells, String(count(line.carried)), String(count(line.direct)) ].map((cell) => typeof cell == 'string' ? whole(cell) : cell) };
	},

	/* The result, and the recommended action. */
	words(relay, proof, all) {
		const silent = proof?.unanswered ?? {};
		const next = {
			off: _('Nothing is compared now: the control group is switched off.'),
			unsure: opposed(change(all.complete), change(proof?.pages?.complete)) ? _('Connections say one thing and page loads the other, so it is not certain whether the relay helps: leave it on, and look again in a day.')
				: !count(all.direct) && count(silent.direct) >= 6 ? _('Connections that this node makes itself get no answer, so there is nothing to compare with. Perhaps the mesh’s exit lets out only clients.')
				: count(proof?.days) >= 7 && !change(all.complete) ? _('A week has brought too few connections to compare. With a larger control group, more of them go direct.')
				: count(proof?.days) >= 7 ? _('A week has not shown for certain whether there is a difference: if there is one, it is within the ranges above.')
				: count(proof?.days) ? _('It is not certain yet whether there is a difference: leave the relay on, and look again in a day.')
					: count(proof?.uncompared) ? _('No connection has been compared in the last seven days. Compare by hand: download a large file on a client with the relay on and off, several times in turn.')
						: _('No connection has been compared in the last seven days: the overview says whether the relay takes any.'),
			faster: _('The relay helps here: leave it on.'),
			slower: _('The relay slows connections down here. Check on the overview whether the processor is at its limit, and try a nearer gateway.'),
			silent: _('More of the carried connections get no answer: check what the gateway refuses, and whether its uplink works.'),
			spared: taking.spared()
		};
		const share = (n, of) => graph.format(100 * count(n) / Math.max(count(of), 1));
		const days = Math.min(count(proof?.days), 7);

		if (!proof)
			return [ relay ? _('The relay is older than this page.') : this.silent ];

		return [
			...days ? [ (days > 1 ? _('Carried connections are %s: %d against %d, last %d days.') : _('Carried connections are %s: %d against %d, today.'))
				.format(faster(change(all.complete)), count(all.carried), count(all.direct), days) ] : [],
			...count(proof.pages?.carried) + count(proof.pages?.direct) ? [ _('Page loads are %s: %d against %d.')
				.format(faster(change(proof.pages.complete)), count(proof.pages.carried), count(proof.pages.direct)) ] : [],
			...count(silent.carried_of) + count(silent.direct_of) ? [ _('Without an answer: %s %% of the carried connections, %s %% of the direct ones.')
				.format(share(silent.carried, silent.carried_of), share(silent.direct, silent.direct_of)) ] : [],
			...count(proof.uncompared) ? [ _('Not compared, because they began while clients filled the path: %d, since the relay’s start.').format(count(proof.uncompared)) ] : [],
			next[proof.verdict] ?? common.text(proof.verdict),
			...proof.verdict == 'slower' && !proof.auto ? [ _('With “Direct when slower” on the relay’s page, new connections go direct in the meantime.') ] : []
		];
	},

	/* The scheduler compares windows, or turns, with serving all clients at once, and reports the result itself. */
	showScheduler(wifirr) {
		this.schedulers = ask.list(wifirr?.schedulers).map(trials);

		const told = ask.list(wifirr?.schedulers).map((s) => [ s, scheduling.gains(s), [ [ _('Windows now:'), s.contention?.why ], [ _('Turns now:'), s.why ] ].filter(([ , why ]) => typeof why == 'string' && why) ])
			.filter(([ , gains, why ]) => gains.length || why.length);

		common.renew(this.scheduler, told.length ? [
			E('h3', {}, [ _('The scheduler’s own comparison') ]),
			...told.map(([ s, gains, why ]) => E('div', { 'class': 'bquic-card' }, [
				E('h4', {}, [ _('Scheduler on %s').format(common.text(s.device)) ]),
				...gains,
				...why.map(([ name, w ]) => E('p', {}, [ E('strong', {}, [ name ]), ' ', scheduling.reason(w) ]))
			]))
		] : []);
	},

	save() {
		const url = URL.createObjectURL(new Blob([ JSON.stringify({ ...this.exported, schedulers: this.schedulers }, null, 2) + '\n' ], { type: 'application/json' }));
		const link = E('a', { 'href': url, 'download': 'bquic-report.json' });

		document.body.append(link);
		link.click();
		link.remove();
		setTimeout(() => URL.revokeObjectURL(url), 1000);
	}
});
