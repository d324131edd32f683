// SPDX-License-Identifier: Apache-2.0
'use strict';
// Pages in a browser: with recorded, hostile and missing status.
// UPDATE=1 writes the expected pictures anew.

const assert = require('node:assert/strict');
const fs = require('node:fs');
const path = require('node:path');
const test = require('node:test');

const { open, restart, show, recorded, config } = require('./browser.js');

/* Compares pixels in the browser; antialiasing may differ. */
async function compare(page, name) {
	const file = path.join(__dirname, 'expected', `${name}.png`);
	const shot = await page.locator('body').screenshot();

	if (process.env.UPDATE) {
		fs.mkdirSync(path.dirname(file), { recursive: true });
		fs.writeFileSync(file, shot);
	}
	const url = (data) => `data:image/png;base64,${data.toString('base64')}`;
	const { differ, painted, size } = await page.evaluate(async ([ a, b ]) => {
		const pixels = async (src) => {
			const image = new Image();
			image.src = src;
			await image.decode();
			const canvas = new OffscreenCanvas(image.width, image.height).getContext('2d');
			canvas.drawImage(image, 0, 0);
			return canvas.getImageData(0, 0, image.width, image.height);
		};
		const [ x, y ] = [ await pixels(a), await pixels(b) ];
		if (x.width != y.width || x.height != y.height)
			return { differ: -1, painted: 0, size: `${x.width}x${x.height}, expected ${y.width}x${y.height}` };

		const far = (a, i, b, j) => Math.abs(a[i] - b[j]) + Math.abs(a[i + 1] - b[j + 1]) + Math.abs(a[i + 2] - b[j + 2]) > 40;
		let differ = 0, painted = 0;
		for (let i = 0; i < x.data.length; i += 4) {
			differ += far(x.data, i, y.data, i);
			painted += far(y.data, i, y.data, 0); /* the first pixel is background */
		}
		return { differ, painted, size: `${x.width}x${x.height}` };
	}, [ url(shot), url(fs.readFileSync(file)) ]);

	assert.ok(differ >= 0, `${name}: ${size}`);
	assert.ok(painted > 500, `${name}: the expected picture is empty`);
	/* relative to the drawing, not the background */
	assert.ok(differ <= painted * 0.05, `${name}: ${differ} of ${painted} drawn pixels differ`);
}

test('graph: the expected picture', async () => {
	const { page, errors } = await open(400, {}, {});

	await page.evaluate(() => {
		const g = window.env.load('bquic.graph').create('t', 'bit/s', [ 'a', 'b' ], 100);
		document.body.className = 'shapes';
		document.body.append(g.element);
		for (let i = 0; i < 140; i++)
			g.push(i % 50 < 45 ? 60 + 50 * Math.sin(i / 9) : null, 2 * i);
	});
	await compare(page, 'graph');
	assert.deepEqual(errors, []);
});

test('table: the expected picture, rows stay in place', async () => {
	const { page, errors } = await open(800, {}, {});
	const same = await page.evaluate(() => {
		const t = window.env.load('bquic.table').create([ { title: 'a' }, { title: 'b', number: true } ], 'none');
		const rows = (active) => [ 'x', 'y', 'z' ].map((key, i) => ({ key, active: i == active, cells: [ `name ${key}`, i ] }));
		document.body.className = 'shapes';
		document.body.append(t.element);
		t.update(rows(0));
		const before = [ ...t.element.querySelectorAll('tbody tr') ];
		t.update(rows(1));
		return before.every((row, i) => row === t.element.querySelectorAll('tbody tr')[i]);
	});
	assert.ok(same, 'rows were made anew');
	await compare(page, 'table');
	await page.evaluate(() => { document.body.className = 'shapes dark'; });
	await compare(page, 'table-dark');
	assert.deepEqual(errors, []);
});

test('table: on a phone, a long text breaks no title', async () => {
	const { page, errors } = await open(390, {}, {});
	const [ shown, whole ] = await page.evaluate(async () => {
		const t = window.env.load('bquic.table').create([ { title: 'Text' } ], 'none');
		const title = document.createElement('b');
		title.textContent = 'Text';
		document.body.append(t.element, title);
		t.update([ { key: 'x', cells: [ 'a line of the log '.repeat(9) ] } ]);
		return [ parseFloat(getComputedStyle(t.element.querySelector('td'), '::before').width), title.getBoundingClientRect().width ];
	});

	assert.ok(shown >= Math.floor(whole), `${shown} of ${whole} pixels`);
	assert.deepEqual(errors, []);
});

test('table: cells of what is not set say what holds then', async () => {
	const set = { ...config.bquic, tower: { '.type': 'peer', '.name': 'tower' }, hill: { '.type': 'peer', '.name': 'hill', prefix: [ '10.1.0.0/16', '10.2.0.0/16' ], tunnels: '5' },
		north: { '.type': 'upstream', '.name': 'north', gateway: 'n:1' } };
	const { page, errors } = await open(1200, recorded, { bquic: set });
	const cells = (view, ...wanted) => page.evaluate(([ view, wanted ]) => {
		const v = window.env.load(`view.bquic.${view}`);
		return Promise.resolve(v.load()).then((had) => v.render(had)).then(() => wanted.map(([ id, name ]) =>
			window.env.sections.flatMap((s) => s.options).find((o) => o.name == name && o.textvalue).textvalue(id).textContent));
	}, [ view, wanted ]);

	assert.deepEqual(await cells('gateway', [ 'tower', 'prefix' ], [ 'tower', 'tunnels' ], [ 'hill', 'prefix' ], [ 'hill', 'tunnels' ]), [ 'as for all relays', 'a fair share', '10.1.0.0/16 10.2.0.0/16', '5' ]);
	assert.deepEqual(await cells('relay', [ 'north', 'weight' ]), [ '100' ]);
	assert.deepEqual(errors, []);
});

test('graph: what no graph can show is a gap; numbers stay readable', async () => {
	const { page, errors } = await open(400, {}, {});
	const { points, texts, times } = await page.evaluate(() => {
		const graph = window.env.load('bquic.graph');
		const g = graph.create('t', 'B', [ 'a' ], 1);
		for (const v of [ undefined, null, NaN, Infinity, -1, '5', {}, [], true, 3 ])
			g.push(v);
		return {
			points: g.element.querySelector('path').getAttribute('d'),
			texts: [ 0, 999, 1000, 12345678, Number.MAX_SAFE_INTEGER, 1e300, null ].map((v) => graph.format(v, 'B')),
			times: [ 7, 1000, 1e300 ].map((v) => graph.format(v, 'ms'))
		};
	});

	assert.equal(points.split(' ').length, 1, points);
	assert.doesNotMatch(points, /NaN|Infinity/);
	assert.deepEqual(texts.slice(0, 4).map((t) => t.replace('\u00a0', ' ')), [ '0 B', '999 B', '1.0 kB', '12.3 MB' ]);
	assert.deepEqual(times.slice(0, 2).map((t) => t.replace('\u00a0', ' ')), [ '7 ms', '1000 ms' ]);
	for (const text of [ ...texts, ...times ])
		assert.ok(text.length < 14, text);
	assert.deepEqual(errors, []);
});

test('graph: the time that a page was hidden is a gap', async () => {
	const { page, errors } = await open(400, {}, {});
	const drawn = await page.evaluate(() => {
		const g = window.env.load('bquic.graph').create('t', 'B', [ 'a' ], 1);

		return [ 0, 5, 10, 70, 75, 1000 ].map((seconds) => {
			Date.now = () => 1e12 + 1000 * seconds;
			g.push(1);
			return g.element.querySelector('path').getAttribute('d').split(' ').map((p) => p[0] == 'M' ? `M${parseFloat(p.slice(1))}` : parseFloat(p));
		});
	});

	assert.deepEqual(drawn.slice(-2), [ [ 'M225', 230, 235, 'M295', 300 ], [ 'M300' ] ]);
	assert.deepEqual(errors, []);
});

test('graph: a line ends where nothing is known, and what is known for once is a dot', async () => {
	const { page, errors } = await open(400, {}, {});
	const drawn = await page.evaluate(() => {
		const g = window.env.load('bquic.graph').create('t', 'B', [ 'a' ], 1), line = g.element.querySelector('path');

		document.body.append(g.element);
		g.show(true);
		g.setPast([ [ 1, 1, ...Array(500).fill(null), 1, ...Array(216).fill(null), 1 ] ]);
		/* what is painted on the line's way, at each sample */
		return [ 0, 1, 12, 250, 490, 502, 515, 719 ].map((i) => line.isPointInStroke(new DOMPoint(300 * (i + 1) / 720 - (i == 719 ? 0.01 : 0), 0)));
	});

	assert.deepEqual(drawn, [ true, true, false, false, false, true, false, true ]);
	assert.deepEqual(errors, []);
});

test('graph: a router that takes some time for its answers has a line, and not dots', async () => {
	const { page, errors } = await open(400, {}, {});
	const drawn = await page.evaluate(() => {
		const graph = window.env.load('bquic.graph'), g = graph.create('t', 'B', [ 'a' ], 10);

		for (const polls of [ 0, 2, 4, 7 ]) {
			Date.now = () => 1e12 + 1000 * graph.every * polls;
			g.push(polls);
		}

		return g.element.querySelector('path').getAttribute('d').split(' ').map((p) => p.split(',')[1]);
	});

	/* a rate is that of the time since the answer before */
	assert.deepEqual(drawn, [ 0, 2, 2, 4, 4, 7, 7, 7 ].map((v) => (100 - 10 * v).toFixed(1)));
	assert.deepEqual(errors, []);
});

test('clients: turns of before a page was hidden are not of the last minute', async () => {
	const { page, errors } = await open(1200, recorded, config);
	const active = recorded['wifirr.clients'].schedulers[0].clients.find((c) => c.state == 'active').client;

	await show(page, 'clients', 0);
	const drawn = await page.evaluate(async (active) => {
		const found = [];

		for (const seconds of [ 0, 1, 31, 600 ]) {
			Date.now = () => 2e12 + 1000 * seconds;
			await window.env.polls.at(-1)();
			const row = [ ...document.querySelectorAll('tr') ].find((r) => r.textContent.includes(active));
			found.push([ ...row.querySelectorAll('rect') ].map((r) => +r.getAttribute('x')));
		}

		return found;
	}, active);

	assert.deepEqual(drawn.slice(-2).map((xs) => xs.slice(-3)), [ [ 28, 29, 59 ], [ 59 ] ]);
	assert.deepEqual(errors, []);
});

test('clients: on a router that takes two seconds to answer, a turn is one bar', async () => {
	const { page, errors } = await open(1200, recorded, config);
	const active = recorded['wifirr.clients'].schedulers[0].clients.find((c) => c.state == 'active').client;

	await show(page, 'clients', 0);
	assert.deepEqual(await page.evaluate(async (active) => {
		for (const seconds of [ 0, 2, 4 ]) {
			Date.now = () => 2e12 + 1000 * seconds;
			await window.env.polls.at(-1)();
		}

		return [ ...[ ...document.querySelectorAll('tr') ].find((r) => r.textContent.includes(active)).querySelectorAll('rect') ].map((r) => +r.getAttribute('x')).slice(-5);
	}, active), [ 55, 56, 57, 58, 59 ]);
	assert.deepEqual(errors, []);
});

test('a page that was opened in the background asks when it is seen', async () => {
	const { page, errors } = await open(1200, { ...recorded, 'bquic.history': { gateway: { down_bps: [ 1e6, 2e6 ] } } }, config);
	const drawn = () => page.$$eval('.bquic-graph path', (all) => all.filter((line) => line.getAttribute('d')).length);
	const hide = (hidden) => page.evaluate(async (hidden) => {
		Object.defineProperty(document, 'hidden', { value: hidden, configurable: true });
		document.dispatchEvent(new Event('visibilitychange'));
		await new Promise((done) => setTimeout(done));
	}, hidden);

	await hide(true);
	await show(page, 'overview', 1);
	await page.locator('button', { hasText: '12 hours' }).evaluate((button) => button.click());
	assert.equal(await drawn(), 0);
	await hide(false);
	assert.equal(await drawn(), 1);
	assert.deepEqual(errors, []);
});

test('overview and clients from recorded status', async () => {
	for (const width of [ 390, 1200 ]) {
		const { page, errors } = await open(width, recorded, config);

		await show(page, 'overview', 3);
		const text = await page.textContent('body');
		for (const part of [ 'connected to the gateway', 'The processor carries 8.1 Mbit/s. The path has shown 30.4 Mbit/s. TCP goes direct, which is faster.', 'clients take turns', recorded['wifirr.status'].schedulers[0].why, 'phy0-ap0: clients that have their turn now: 3 of 6 with demand.', 'Switch off', 'Pause all schedulers' ])
			assert.ok(text.includes(part), `${part} in ${text}`);
		assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= window.innerWidth), `wider than ${width}`);

		/* by keyboard: every button is reached in order */
		const buttons = await page.locator('button').count();
		const reached = new Set();
		for (let i = 0; i < buttons + 10; i++) {
			await page.keyboard.press('Tab');
			reached.add(await page.evaluate(() => [ ...document.querySelectorAll('button') ].indexOf(document.activeElement)));
		}
		reached.delete(-1);
		assert.equal(reached.size, buttons);
		assert.deepEqual(errors, []);
		await page.close();

		const clients = await open(width, recorded, config);
		await show(clients.page, 'clients', 3);
		const active = recorded['wifirr.clients'].schedulers[0].clients.filter((c) => c.state == 'active').length;
		assert.equal(await clients.page.locator('tr.active').count(), active);
		assert.equal(await clients.page.locator('tbody tr').count(), recorded['wifirr.clients'].schedulers[0].clients.length);
		assert.ok(await clients.page.evaluate(() => document.documentElement.scrollWidth <= window.innerWidth), `wider than ${width}`);
		assert.deepEqual(clients.errors, []);
		await clients.page.close();
	}
});

/* Replaces every string of an answer. */
const markup = '<img src=x onerror="window.executed=true"><script>window.executed=true</script>"\'`$(id)\n%s%d&lt;';
function poison(value) {
	if (typeof value == 'string')
		return markup;
	if (Array.isArray(value))
		return value.map(poison);
	if (value && typeof value == 'object')
		return Object.fromEntries(Object.entries(value).map(([ k, v ]) => [ k, poison(v) ]));

	return value;
}

/* Nothing is executed, and text is shown literally. */
async function harmless(page, errors, wants) {
	await page.waitForTimeout(100);
	assert.equal(await page.evaluate(() => window.executed), false);
	assert.equal(await page.locator('img, body script:not([src])').count() - await page.evaluate(() => [ ...document.scripts ].filter((s) => s.parentNode == document.body && !s.src).length), 0);
	const text = (await page.textContent('body')).replace(/\s+/g, ' ');
	assert.equal(text.includes(markup.replace(/\s+/g, ' ')), wants, text.slice(0, 400));
	assert.deepEqual(errors, []);
}

test('hostile status: nothing is executed, all is shown as it is', async () => {
	const hostile = poison(recorded);
	const stations = recorded['wifirr.clients'].schedulers[0].clients.map((c) => c.client);
	const names = { 'luci-rpc.getHostHints': Object.fromEntries([ ...stations, markup ].map((mac) => [ mac.toUpperCase(), { name: markup } ])) };

	/* so that the answers match their sections */
	for (const s of hostile['wifirr.status'].schedulers)
		s.device = markup;
	hostile['bquic.relay'] = null;
	hostile['bquic.check'] = { ok: false, mistakes: [ { line: 3, section: markup, option: markup, text: markup } ] };
	const bad = structuredClone(config);
	bad.wifirr.ap0.device = markup;

	for (const view of [ 'overview', 'clients', 'gateway', 'relay', 'proof' ]) {
		const { page, errors } = await open(1200, { ...hostile, ...names }, bad);
		await show(page, view, 3);
		await harmless(page, errors, true);
		await page.close();
	}
});

test('status with fields missing, of other types, and with huge numbers', async () => {
	const wrecks = [ (v) => undefined, (v) => null, (v) => 1e308, (v) => -1, (v) => 'x', (v) => [], (v) => ({}), (v) => Number.MAX_SAFE_INTEGER ];

	/* each leaf and each object in turn is broken */
	function wreck(value, how) {
		if (value && typeof value == 'object' && !Array.isArray(value))
			return Object.fromEntries(Object.entries(value).map(([ k, v ]) => [ k, v && typeof v == 'object' ? wreck(v, how) : how(v) ]));
		if (Array.isArray(value))
			return value.map((v) => v && typeof v == 'object' ? wreck(v, how) : how(v));
		return how(value);
	}
	const answers = wrecks.map((how) => Object.fromEntries(Object.entries(recorded).map(([ k, v ]) => [ k, wreck(v, how) ])));
	for (const how of wrecks)
		answers.push(Object.fromEntries(Object.keys(recorded).map((k) => [ k, how() === undefined ? {} : how() ])),
			{ 'bquic.status': { gateway: how(), relay: how() }, 'bquic.check': { mistakes: how() }, 'wifirr.status': { schedulers: [ how() ] }, 'wifirr.clients': { schedulers: [ how(), { device: 'x', clients: [ how() ] } ] } });
	const { page, errors } = await open(1200, {}, config);
	for (const answer of answers)
		for (const view of [ 'overview', 'clients', 'gateway', 'relay', 'proof' ]) {
			await restart(page, { objects: [ 'bquic', 'wifirr' ], ...answer }, config);
			await show(page, view, 2);
			const text = await page.textContent('body');
			assert.ok(text.length > 100, `${view}: empty`);
			assert.doesNotMatch(text, /undefined|\[object|NaN/, JSON.stringify(answer).slice(0, 300));
			assert.deepEqual(errors, [], JSON.stringify(answer).slice(0, 300));
		}
});

test('what is not installed, not set up or does not answer, and the way out', async () => {
	for (const [ answers, uci, wants, view ] of [
		[ { 'wifirr.clients': { schedulers: [] } }, config, [ 'No scheduler is running.', 'It is waiting for the device phy0-ap0', 'Open the log' ], 'clients' ],
		[ { 'wifirr.clients': { schedulers: [] } }, {}, [ 'No scheduler is running.', 'Set up' ], 'clients' ],
		[ {}, {}, [ 'The package bquic-gateway is not installed.', 'The package wifirr-sched is not installed.', 'Install it' ] ],
		[ { objects: [ 'bquic', 'wifirr' ] }, config, [ 'no answer', 'Open the log', 'It is waiting for the device phy0-ap0' ] ],
		[ { objects: [ 'bquic', 'wifirr' ] }, { bquic: {}, wifirr: {} }, [ 'Set up', 'Switch on' ] ]
	]) {
		const { page, errors } = await open(1200, answers, uci);
		await show(page, view ?? 'overview', 2);
		const text = await page.textContent('body');
		for (const part of wants)
			assert.ok(text.includes(part), `${part} in ${text}`);
		assert.deepEqual(errors, []);
		await page.close();
	}
});

test('a router that does not answer for a while: pages stay as they are, and say so', async () => {
	const answers = { ...recorded, objects: [ 'bquic', 'wifirr' ], 'bquic.history': { gateway: { down_bps: [ 1e6, 2e6 ] } }, 'bquic.check': { mistakes: [ { text: 'a mistake' } ] }, 'wifirr.check': { mistakes: [ 'a mistake' ] }, 'file.exec': { stdout: 'Tue Nov 24 20:34:47 2026 daemon.info bquic[42]: a line' } };
	const { page, errors } = await open(1200, answers, config);
	const poll = (away) => page.evaluate(async (away) => {
		window.answers.away = away;
		for (const poll of window.env.polls)
			await poll();
		document.querySelectorAll('.bquic-graphs').forEach((graphs) => { graphs.style.display = 'none'; });
		return [ document.body.innerText, window.indicator ];
	}, away);
	const clients = () => page.evaluate(() => [ ...document.querySelectorAll('.bquic-graph') ].map((g) => g.textContent).find((text) => text.includes('with demand')));
	const hours = () => page.evaluate(() => {
		[ ...document.querySelectorAll('.bquic-ranges button') ].at(-1)?.click();
		return [ ...document.querySelectorAll('.bquic-graph path') ].map((line) => line.getAttribute('d')).filter((points) => points);
	});

	for (const view of [ 'overview', 'proof', 'gateway', 'relay', 'scheduler', 'clients', 'log' ]) {
		await restart(page, answers, config);
		await show(page, view, 2);
		const [ before, none ] = await poll(false), past = await hours();
		assert.deepEqual(await poll(true), [ before, 'The router does not answer.' ], view);
		assert.deepEqual([ past.length, past ], [ view == 'overview' ? 1 : 0, await hours() ], view);
		if (view == 'overview')
			assert.match(await clients(), /with demand: –/, 'no gap in the graph');
		assert.deepEqual([ none, (await poll(false))[1] ], [ null, null ], view);
		assert.deepEqual(errors, [], view);
	}
});

test('what is as it was is not drawn anew: no screen reader says it again, no selection is lost', async () => {
	const relay = { ...recorded['bquic.status'].relay, unseen: { why: 'apart' } };
	const answers = { ...recorded, 'bquic.status': { ...recorded['bquic.status'], relay }, 'bquic.check': { mistakes: [ { text: 'a mistake' } ] }, 'wifirr.check': { mistakes: [ 'a mistake' ] }, 'file.exec': { stdout: 'Tue Nov 24 20:34:47 2026 daemon.info bquic[42]: a line' } };
	const { page, errors } = await open(1200, answers, config);

	for (const view of [ 'overview', 'proof', 'gateway', 'relay', 'scheduler', 'clients', 'log' ]) {
		await restart(page, answers, config);
		await show(page, view, 2);
		assert.deepEqual(await page.evaluate(async () => {
			const drawn = [];

			new MutationObserver((records) => drawn.push(...records)).observe(document.body, { childList: true, subtree: true });
			for (const poll of window.env.polls)
				await poll();
			await new Promise((done) => setTimeout(done));

			/* graphs go on with time, and other pictures have no text */
			return drawn.map((r) => r.target).filter((node) => !node.closest('.bquic-graph')).map((node) => node.textContent).filter((text) => text);
		}), [], view);
		assert.deepEqual(errors, [], view);
	}
});

test('behind the dialogue of an expired session, pages stay as they are', async () => {
	const answers = { ...recorded, objects: [ 'bquic', 'wifirr' ], 'file.exec': { stdout: 'Tue Nov 24 20:34:47 2026 daemon.info bquic[42]: a line' } };
	const { page, errors } = await open(1200, answers, config);
	const poll = (expired) => page.evaluate(async (expired) => {
		window.answers.expired = expired;
		await Promise.all(window.env.polls.map((poll) => poll()));
		document.querySelectorAll('.bquic-graphs').forEach((graphs) => { graphs.style.display = 'none'; });
		return document.body.innerText;
	}, expired);

	for (const view of [ 'overview', 'proof', 'gateway', 'relay', 'scheduler', 'clients', 'log' ]) {
		await restart(page, answers, config);
		await show(page, view, 2);
		assert.equal(await poll(false), await poll(true), view);
		assert.deepEqual(errors, [], view);
	}
});

test('a slow router is asked again when it has answered, not before', async () => {
	const { page, errors } = await open(1200, recorded, config);
	const asked = await page.evaluate(async () => {
		let asked = 0, answer;

		window.env.load('bquic.ask').every(5, () => new Promise((done) => {
			asked++;
			answer = done;
		}));
		window.env.polls.at(-1)();
		document.dispatchEvent(new Event('visibilitychange'));
		const before = asked;
		answer();
		await new Promise((done) => setTimeout(done));
		window.env.polls.at(-1)();

		return [ before, asked ];
	});

	assert.deepEqual(asked, [ 1, 2 ]);
	assert.deepEqual(errors, []);
});

test('overview: before the first answer, it says nothing of the daemons', async () => {
	const { page, errors } = await open(1200, { ...recorded, away: true }, config);

	await show(page, 'overview', 0);
	assert.doesNotMatch(await page.innerText('body'), /no answer|not installed/);
	await page.evaluate(() => { window.answers.away = false; return Promise.all(window.env.polls.map((poll) => poll())); });
	assert.match(await page.innerText('body'), /connected to the gateway/);
	assert.doesNotMatch(await page.innerText('body'), /Waiting for an answer/);
	assert.deepEqual(errors, []);
});

test('overview: on a narrow card, the name of a device stays in one piece', async () => {
	const { page, errors } = await open(360, recorded, config);

	await show(page, 'overview', 1);
	const lines = await page.evaluate(() => {
		const title = document.querySelector('.bquic-cards > :last-child h3 > span');
		const walker = document.createTreeWalker(title, NodeFilter.SHOW_TEXT);
		while (!walker.nextNode().data.includes('phy0-ap0'));
		const range = document.createRange(), at = walker.currentNode.data.indexOf('phy0-ap0');
		range.setStart(walker.currentNode, at);
		range.setEnd(walker.currentNode, at + 8);
		/* as beside the words of any language on the button */
		return Array.from({ length: 20 }, (x, em) => {
			title.style.maxWidth = `${em}em`;
			return range.getClientRects().length;
		});
	});
	assert.equal(Math.max(...lines), 1);
	assert.match(await page.innerText('body'), /Scheduler on phy0-ap0/);
	assert.deepEqual(errors, []);
});

test('a switch applies its own change, and none that waits elsewhere', async () => {
	const press = async (changes, words = '1') => {
		const { page, errors } = await open(1200, { ...recorded, changes, 'uci.commit': {} }, { bquic: { relay: { ...config.bquic.relay, enabled: words } }, wifirr: { ap0: { ...config.wifirr.ap0, enabled: words } } });
		await show(page, 'overview', 2);
		await page.locator('.bquic-card h3', { hasText: /^Relay/ }).locator('button').click();
		await page.waitForFunction(() => window.env.did.length > 0);
		await page.waitForTimeout(100);
		const did = await page.evaluate(() => window.env.did);
		assert.deepEqual(errors, []);
		await page.close();
		return did;
	};
	const wants = [ [ 'set', 'bquic', 'relay', 'enabled', '0' ], [ 'save' ], [ 'uci.commit', 'bquic' ] ];

	assert.deepEqual(await press({}), wants);
	/* other words for 1 stay as they are: LuCI's save() saves all that the page has set */
	assert.deepEqual(await press({}, 'on'), wants);
	/* a host name pending for Save & Apply stays pending */
	assert.deepEqual(await press({ system: [ [ 'set', 'cfg01e48a', 'hostname', 'x' ] ] }), wants);
	/* changes of the same file cannot be left out, and the page says so */
	const [ [ what, text ], ...more ] = await press({ bquic: [ [ 'set', 'gateway', 'listen', ':9' ] ] });
	assert.deepEqual([ what, more ], [ 'notice', [] ]);
	assert.match(text, /apply or revert them first/);
});

test('a switch whose change is saved and could not be committed: it is not applied, and no daemon has failed', async () => {
	const bquic = { relay: { ...config.bquic.relay, enabled: '0' } };
	const { page, errors } = await open(1200, { objects: [ 'bquic', 'wifirr' ], 'bquic.status': { gateway: null, relay: null } }, { ...config, bquic });
	const relay = page.locator('.bquic-card', { has: page.locator('h3', { hasText: /^Relay/ }) });

	await show(page, 'overview', 1);
	await page.evaluate(() => {
		const uci = window.env.load('uci'), save = uci.save;

		uci.save = () => {
			window.config.bquic.relay.enabled = '1'; /* as this session sees it then */
			window.answers.changes = { bquic: [ [ 'set', 'relay', 'enabled', '1' ] ] };

			return save.call(uci);
		};
	});
	await relay.locator('button').click();
	await page.waitForFunction(() => window.env.did.some((d) => d[0] == 'notice'));
	await page.evaluate(async () => {
		for (const poll of window.env.polls)
			await poll();
	});
	assert.equal(await relay.locator('.bquic-state').textContent(), 'off');
	assert.match(await page.textContent('body'), /Changes of \/etc\/config\/bquic are saved but not applied/);
	assert.deepEqual(errors, []);
	await page.close();
});

test('overview: a section without a name is switched by the name that it has now, and starts', async () => {
	/* libuci makes the name from the section's options */
	const section = (name, enabled) => ({ [name]: { '.type': 'scheduler', '.name': name, '.anonymous': true, device: 'phy0-ap0', enabled } });
	const { page, errors } = await open(1200, { objects: [ 'wifirr' ], 'wifirr.status': { schedulers: [] }, 'uci.commit': {} }, { wifirr: section('cfg01aaaa', '0') });
	const card = page.locator('.bquic-card', { has: page.locator('h3', { hasText: /^Scheduler/ }) });

	await show(page, 'overview', 1);
	await page.evaluate(([ changed, on ]) => {
		const uci = window.env.load('uci'), save = uci.save;

		window.config.wifirr = changed; /* by another page */
		uci.save = () => {
			window.config.wifirr = on;

			return save.call(uci);
		};
	}, [ section('cfg01bbbb', '0'), section('cfg01cccc', '1') ]);
	await card.locator('button').click();
	await page.waitForFunction(() => window.env.did.length > 2);
	assert.deepEqual(await page.evaluate(() => window.env.did), [ [ 'set', 'wifirr', 'cfg01bbbb', 'enabled', '1' ], [ 'save' ], [ 'uci.commit', 'wifirr' ] ]);
	await page.evaluate(async () => {
		for (const poll of window.env.polls)
			await poll();
	});
	assert.equal(await card.locator('.bquic-state').textContent(), 'is starting');
	assert.deepEqual(errors, []);
	await page.close();
});

test('overview: cards stay as they are while the configuration cannot be read again', async () => {
	/* somebody else has changed the gateway's section, so it is read again */
	const { page, errors } = await open(1200, { ...recorded, objects: [ 'bquic', 'wifirr' ], 'bquic.status': { ...recorded['bquic.status'], off: [] } }, structuredClone({ ...config, bquic: { ...config.bquic, gateway: { ...config.bquic.gateway, enabled: '0' } } }));
	const cards = () => page.$$eval('.bquic-cards:not(.bquic-graphs) > .bquic-card', (all) => all.map((c) => c.innerText));

	await show(page, 'overview', 1);
	const before = await cards();
	for (const how of [ 'away', 'expired' ])
		assert.deepEqual([ how, ...await page.evaluate(async (how) => {
			const uci = window.env.load('uci'), rpc = window.env.load('rpc');
			const err = Object.assign(new Error(how), how == 'expired' ? { name: 'SessionError' } : {});

			uci.load = rpc.list = () => Promise.reject(err);
			for (const poll of window.env.polls)
				await poll();

			return [ ...document.querySelectorAll('.bquic-cards:not(.bquic-graphs) > .bquic-card') ].map((c) => c.innerText);
		}, how) ], [ how, ...before ]);
	assert.deepEqual(errors, []);
	await page.close();
});

test('overview: of a switch that does not reach the router, one sentence says why', async () => {
	const { page, errors } = await open(1200, { ...recorded, objects: [ 'bquic', 'wifirr' ] }, config);
	const button = page.locator('.bquic-card h3', { hasText: /^Relay/ }).locator('button');

	await show(page, 'overview', 1);
	await page.evaluate(() => {
		window.answers.away = true;
		window.env.load('uci').load = () => Promise.reject(new Error('XHR request aborted by browser'));
	});
	await button.click();
	await page.waitForFunction(() => window.env.did.length > 0 && !document.querySelector('.bquic-card h3 button:disabled'));
	assert.deepEqual(await page.evaluate(() => window.env.did), [ [ 'notice', 'XHR request aborted by browser' ] ]);
	assert.deepEqual(errors, []);
	await page.close();
});

test('overview: a switch of a section that somebody has removed says so', async () => {
	const { page, errors } = await open(1200, { objects: [ 'wifirr' ], 'wifirr.status': { schedulers: [] }, 'uci.commit': {} }, structuredClone({ wifirr: config.wifirr }));

	await show(page, 'overview', 1);
	await page.evaluate(() => { window.config.wifirr = {}; });
	await page.locator('.bquic-card h3', { hasText: /^Scheduler/ }).locator('button').click();
	await page.waitForFunction(() => window.env.did.length > 0);
	assert.deepEqual(await page.evaluate(() => window.env.did), [ [ 'notice', 'These settings were changed elsewhere: reload this page to see them.' ] ]);
	assert.deepEqual(errors, []);
	await page.close();
});

test('overview: while a switch works, it cannot be pressed again, whatever else changes', async () => {
	const { page, errors } = await open(1200, { ...structuredClone(recorded), 'uci.commit': {} }, config);
	const button = page.locator('.bquic-card h3', { hasText: /^Gateway/ }).locator('button');

	await show(page, 'overview', 1);
	await page.evaluate(() => {
		const uci = window.env.load('uci'), save = uci.save;

		uci.save = () => new Promise((done) => { window.saved = () => done(save.call(uci)); });
	});
	await button.click();
	await page.waitForFunction(() => window.saved);
	assert.equal(await page.evaluate(async () => {
		window.answers['bquic.status'].gateway.uptime_s += 2;
		for (const poll of window.env.polls)
			await poll();

		return document.querySelector('.bquic-card h3 button').disabled;
	}), true);
	await page.evaluate(() => window.saved());
	await page.waitForFunction(() => window.env.did.some((d) => d[0] == 'uci.commit'));
	await page.waitForFunction(() => document.body.textContent.includes('running for 30s') && !document.querySelector('.bquic-card h3 button').disabled);
	assert.deepEqual(errors, []);
	await page.close();
});

/* One poll of everything, so long after a page was opened that a daemon must have started. */
const afterStart = (page) => page.evaluate(async () => {
	const now = Date.now;

	Date.now = () => now() + 11000;
	for (const poll of window.env.polls)
		await poll();
});

/* One poll of everything, while the scheduler tells this. */
const told = (page, more) => page.evaluate(async (more) => {
	Object.assign(window.answers['wifirr.status'].schedulers[0] ?? {}, more);
	if (!more)
		window.answers['wifirr.status'].schedulers = [];
	for (const poll of window.env.polls)
		await poll();
}, more);

test('a click on what changes with every poll is not lost, by mouse and by keyboard', async () => {
	for (const device of [ 'mouse', 'keyboard' ]) {
		const { page, errors } = await open(1200, { ...structuredClone(recorded), 'wifirr.pause': {} }, config);

		await show(page, 'overview', 1);
		const button = page.locator('button', { hasText: 'Pause all schedulers' });
		await button.hover();
		await button.focus();
		await page[device].down(...device == 'mouse' ? [] : [ 'Space' ]);
		await told(page, { clients: 10 });
		await told(page, { clients: 11 });
		await page[device].up(...device == 'mouse' ? [] : [ 'Space' ]);
		assert.deepEqual(await page.evaluate(() => window.env.did), [ [ 'wifirr.pause' ] ], device);
		await told(page, { clients: 12 });
		assert.match(await page.textContent('body'), /Clients: 12/);
		assert.deepEqual(errors, []);
		await page.close();
	}
});

test('keyboard focus stays when what has it is drawn anew, and never goes to what does something else', async () => {
	const at = (page) => page.evaluate(() => document.activeElement.closest('.bquic-card') && (document.activeElement.closest('button, a')?.textContent ?? 'the card'));
	const { page, errors } = await open(1200, structuredClone(recorded), config);

	await show(page, 'overview', 1);
	await page.setViewportSize({ width: 1200, height: 200 });
	await page.locator('button', { hasText: 'Pause all schedulers' }).focus();
	await page.evaluate(() => window.scrollTo(0, document.body.scrollHeight));
	const scrolled = await page.evaluate(() => window.scrollY);
	await told(page, { clients: 10 });
	assert.equal(await at(page), 'Pause all schedulers');
	assert.equal(await page.evaluate(() => window.scrollY), scrolled, 'a poll has moved the page');
	await told(page, { paused: true });
	assert.equal(await at(page), 'Resume all schedulers');
	await told(page, null);
	assert.equal(await at(page), 'the card');
	assert.deepEqual(errors, []);
	await page.close();

	for (const [ view, name ] of [ [ 'scheduler', 'Open the log' ], [ 'clients', 'Open the log' ] ]) {
		const { page, errors } = await open(1200, { 'wifirr.check': { mistakes: [] }, 'wifirr.status': { schedulers: [] }, 'wifirr.clients': { schedulers: [] } }, config);

		await show(page, view, 1);
		await afterStart(page);
		await page.locator('a', { hasText: name }).focus();
		await told(page, null);
		assert.equal(await page.evaluate(() => document.activeElement.textContent), name, view);
		assert.deepEqual(errors, []);
		await page.close();
	}
});

test('the relay’s test connects as the relay would, or says why it cannot', async () => {
	const [ first, second, other ] = [ 'A', 'B', 'C' ].map((c) => `sha256/${c.repeat(43)}=`);
	const result = { url: 'https://h:8443/', status: 200, bytes: 5, mbps: 1, handshake_ms: 2, data_per_ack: 3 };
	const wrong = (key) => ({ error: `cannot connect to g:8443: wrong pin: the server's key is ${key}` });
	const up = (name, gateway, more) => ({ [name]: { '.type': 'upstream', '.name': name, gateway, ...more } });
	const good = { gateway: [ 'g:8443' ], pin: [ first, second ] };

	for (const [ relay, more, answers, calls, says ] of [
		[ good, {}, { [`bquic.fetch https://g:8443/ ${first} bquic `]: wrong(second), [`bquic.fetch https://g:8443/ ${second} bquic `]: { result } }, [ [ 'https://g:8443/', first ], [ 'https://g:8443/', second ] ], 'answered with status 200' ],
		[ good, {}, { 'bquic.fetch': wrong(other) }, [ [ 'https://g:8443/', first ] ], other ],
		/* a key that is refused although it is the pin, and gateways that take turns */
		[ good, {}, { 'bquic.fetch': wrong(first) }, [ [ 'https://g:8443/', first ] ], first ],
		[ { ...good, pin: [ second, first ] }, {}, { 'bquic.fetch': wrong(first) }, [ [ 'https://g:8443/', second ], [ 'https://g:8443/', first ] ], first ],
		[ { pin: [ first ] }, { ...up('a', 'off:1', { enabled: '0', weight: '900' }), ...up('b', 'light:2', { weight: '50' }), ...up('c', 'usual:3'), ...up('d', 'as-usual:4', { weight: '100' }) },
			{ 'bquic.fetch': { result } }, [ [ 'https://usual:3/', first ] ], 'answered with status 200' ],
		[ { pin: [ first ] }, up('a', 'off:1', { enabled: '0' }), {}, [], 'There is no gateway to test' ],
		[ { gateway: [ 'g:8443' ], ca: '/etc/ca.pem' }, {}, { 'bquic.fetch https://g:8443/  bquic /etc/ca.pem': { result } }, [ [ 'https://g:8443/', '' ] ], 'answered with status 200' ],
		[ { ...good, server_name: 'x.example' }, {}, {}, [], 'no other server name' ],
		/* its answer names the key */
		[ { gateway: [ 'g:8443' ] }, {}, { 'bquic.fetch': { error: `give --pin ${other}` } }, [ [ 'https://g:8443/', '' ] ], other ]
	]) {
		const { page, errors } = await open(1200, { ...recorded, ...answers }, { bquic: { relay: { '.type': 'relay', '.name': 'relay', enabled: '0', ...relay }, ...more } });

		await show(page, 'relay', 1);
		await page.locator('[data-name="_test"] button').click();
		const said = page.locator('[data-name="_test"] p');
		assert.ok((await said.textContent()).includes(says), `${says} in ${await said.textContent()}`);
		assert.deepEqual((await page.evaluate(() => window.env.did)).map((d) => d.slice(1, 3)), calls, says);
		assert.deepEqual(errors, []);
		await page.close();
	}
});

test('a relay with gateways in sections of their own is switched on from the overview', async () => {
	for (const [ more, name ] of [ [ {}, 'Set up' ], [ { gateway: [ 'g:8443' ] }, 'Switch on' ], [ { upstream: '1' }, 'Switch on' ], [ { upstream: '0' }, 'Set up' ] ]) {
		const { upstream, ...options } = more;
		const bquic = { relay: { '.type': 'relay', enabled: '0', token: 't', ...options } };

		if (upstream)
			bquic.u = { '.type': 'upstream', '.name': 'u', gateway: 'g:8443', enabled: upstream };
		const { page, errors } = await open(1200, { 'bquic.status': { gateway: null, relay: null } }, { ...config, bquic });
		await show(page, 'overview', 1);
		assert.deepEqual(await page.locator('.bquic-card h3', { hasText: /^Relay/ }).locator('button, a').allTextContents(), [ name ], JSON.stringify(more));
		assert.deepEqual(errors, []);
		await page.close();
	}
});

test('who may only read cannot switch', async () => {
	const { page, errors } = await open(1200, { ...recorded, readonly: true }, config);

	await show(page, 'overview', 2);
	assert.ok(await page.locator('button:not([aria-pressed])').count() >= 3);
	assert.equal(await page.locator('button:not([disabled]):not([aria-pressed])').count(), 0);
	assert.deepEqual(errors, []);
});

test('who may only read sees what runs and what is wrong, what is off, and what has failed', async () => {
	const off = (...off) => ({ objects: [ 'bquic', 'wifirr' ], 'bquic.status': { gateway: null, relay: null, off }, 'bquic.check': { mistakes: [ { text: 'a mistake' } ] } });
	const quiet = off('gateway', 'relay');

	for (const [ view, answers, wants, not ] of [
		[ 'overview', quiet, [ 'off', 'a mistake', 'Switch on' ], 'does not answer' ],
		[ 'overview', quiet, [ 'off' ], 'Set up' ],
		[ 'overview', off('relay'), [ 'no answer', 'Switch off', 'Open the log' ] ],
		[ 'proof', quiet, [ 'The relay is off.' ] ],
		[ 'proof', off('gateway'), [ 'The relay does not answer.' ] ],
		[ 'gateway', recorded, [ 'Only users who may change', 'relays without a name', 'tower' ] ],
		[ 'gateway', quiet, [ 'Only users who may change' ], 'no token' ],
		[ 'relay', recorded, [ 'Only users who may change', 'The processor carries', '10.9.0.99:8443', '10.9.0.11' ] ],
		[ 'relay', quiet, [ 'Only users who may change' ], 'No answer' ]
	]) {
		/* the token is in the file */
		const { page, errors } = await open(1200, { ...answers, readonly: true }, { wifirr: config.wifirr });

		await show(page, view, 2);
		const text = await page.innerText('body');
		for (const part of wants)
			assert.ok(text.includes(part), `${view}: ${part} in ${text}`);
		assert.ok(!not || !text.includes(not), `${view}: ${not} in ${text}`);
		assert.deepEqual(errors, []);
		await page.close();
	}
});

/* Draws the overview from a gateway at each [ uptime, bytes sent ] (null: no answer) and returns the text of its traffic graph. */
async function traffic(samples) {
	const { page, errors } = await open(1200, { ...recorded, 'bquic.status': undefined }, config);

	await show(page, 'overview', 0);
	await page.locator('button', { hasText: '5 minutes' }).click();
	for (const sample of samples)
		await page.evaluate(async (gateway) => {
			window.answers['bquic.status'] = gateway ? { gateway, relay: null } : undefined;
			for (const poll of window.env.polls)
				await poll();
		}, sample && { ...recorded['bquic.status'].gateway, uptime_s: sample[0], sent: sample[1] });
	const graph = page.locator('.bquic-graph', { hasText: 'Traffic' });
	const found = { top: await graph.locator('.top').textContent(), now: await graph.locator('.key').first().textContent() };
	assert.deepEqual(errors, []);
	await page.close();

	return JSON.parse(JSON.stringify(found).replaceAll('\u00a0', ' '));
}

test('traffic by the clock of the daemon: polls close together, late ones and a restart are no peak', async () => {
	assert.deepEqual(await traffic([ [ 100, 1e9 ], [ 102, 1.005e9 ] ]), { top: '≤ 20.0 Mbit/s', now: 'to clients: 20.0 Mbit/s' });
	/* a burst between two polls 20 ms apart counts in the next rate */
	assert.deepEqual(await traffic([ [ 100, 1e9 ], [ 102, 1.004e9 ], [ 102.02, 1.005e9 ], [ 104, 1.009e9 ] ]), { top: '≤ 20.0 Mbit/s', now: 'to clients: 20.0 Mbit/s' });
	assert.deepEqual(await traffic([ [ 100, 1e9 ], [ 102, 1.004e9 ], [ 1, 1e9 ], [ 3, 1.005e9 ] ]), { top: '≤ 20.0 Mbit/s', now: 'to clients: 20.0 Mbit/s' });
});

test('a relay says whether connections are carried, and why not', async () => {
	const was = recorded['bquic.status'], carries = 'The processor carries 85 Mbit/s. ';

	for (const [ takes, why, path_bps, wants ] of [
		[ 'all', undefined, 0, `${carries}Connections are carried.` ],
		[ 'all', undefined, 30412345, `${carries}The path has shown 30.4 Mbit/s. Connections are carried.` ],
		[ 'small', 'slow', 0, `${carries}Connections go direct until the path has shown its rate.` ],
		[ 'small', 'slow', 8123456, `${carries}The path has shown 8.1 Mbit/s. TCP goes direct, which is faster.` ],
		[ 'nothing', 'busy', 0, `${carries}Connections go direct, because the processor is busy.` ],
		[ 'nothing', 'measuring', 0, `${carries}Connections go direct while the processor is measured.` ]
	]) {
		const processor = { takes, why, carries_bps: 85e6, path_bps };
		const { page, errors } = await open(1200, { ...recorded, 'bquic.status': { ...was, relay: { ...was.relay, processor } } }, config);

		for (const view of [ 'overview', 'relay' ]) {
			await show(page, view, 2);
			const said = await page.$$eval('p', (all) => all.map((p) => p.textContent));
			assert.ok(said.includes(wants), `${view}: ${wants} in ${said.join('\n')}`);
			await page.evaluate(() => document.body.replaceChildren());
		}
		assert.deepEqual(errors, []);
		await page.close();
	}
});

test('overview: a relay is green only if it takes new connections, and says why it does not', async () => {
	const was = recorded['bquic.status'];
	const gateways = [ { address: 'g:1', state: 'away' }, { address: 'g:2', state: 'no uplink' } ];

	for (const [ more, state, kind, says ] of [
		[ { taking: undefined }, 'connected to the gateway', 'on' ], /* of an older relay */
		[ { taking: false }, 'connected to the gateway, but new connections go direct', '' ],
		[ { proof: { ...was.relay.proof, verdict: 'spared' } }, 'connected to the gateway, but new connections go direct', '', 'Carried connections were slower, or got no answer' ],
		[ { state: 'away', last_error: 'no route' }, 'no gateway answers: connections go direct', 'bad', 'no route' ],
		[ { state: 'away', gateways }, 'no gateway has an uplink: connections go direct', 'bad' ],
		[ { refused: 3 }, 'connected to the gateway', 'on', 'Direct, because the gateway refused the target: 3 since the start.' ]
	]) {
		const processor = { takes: 'all', carries_bps: 85e6, path_bps: 0 };
		const { page, errors } = await open(1200, { ...recorded, 'bquic.status': { ...was, relay: { ...was.relay, processor, ...more } } }, config);

		await show(page, 'overview', 1);
		const card = page.locator('.bquic-card', { has: page.locator('h3', { hasText: /^Relay/ }) });
		assert.deepEqual([ await card.locator('.bquic-state').textContent(), await card.locator('.bquic-state').getAttribute('class') ], [ state, `bquic-state ${kind}` ]);
		const text = await card.textContent();
		assert.ok(text.includes(says ?? ''), `${says} in ${text}`);
		assert.equal(text.includes('Connections are carried.'), kind == 'on', text);
		assert.deepEqual(errors, []);
		await page.close();
	}
});

test('overview: a gateway without an uplink, and what it refuses', async () => {
	const was = recorded['bquic.status'];
	const card = async (more) => {
		const { page, errors } = await open(1200, { ...recorded, 'bquic.status': { ...was, gateway: { ...was.gateway, ...more } } }, config);

		await show(page, 'overview', 1);
		const text = await page.locator('.bquic-card', { has: page.locator('h3', { hasText: /^Gateway/ }) }).textContent();
		assert.deepEqual(errors, []);
		await page.close();

		return text;
	};

	assert.doesNotMatch(await card({ tunnels: { ...was.gateway.tunnels, uplink: true, denied: 0 } }), /uplink|Refused/);
	assert.match(await card({ tunnels: { ...was.gateway.tunnels, uplink: false } }), /Its uplink does not work: relays are told to use another gateway\./);
	assert.match(await card({ refused: { full: 3, source: 2, rate: 1, memory: 4, retry: 99 }, tunnels: { denied: 12 } }),
		/Refused since the start \(all places are taken: 3, too many from one address: 2, too many handshakes: 1, memory is short: 4, no valid token: 12\)\./);
});

test('overview: what somebody else switches on or off, or adds, is not said to have failed', async () => {
	const { page, errors } = await open(1200, structuredClone(recorded), structuredClone(config));
	const cards = () => page.$$eval('.bquic-cards:not(.bquic-graphs) > .bquic-card', (all) => all.map((c) => [ c.querySelector('h3 > span').textContent, c.querySelector('.bquic-state').textContent, c.querySelector('button').textContent ].join(', ')));
	const poll = (change) => page.evaluate(async (change) => {
		new Function(change)();
		for (const poll of window.env.polls)
			await poll();
	}, change);

	await show(page, 'overview', 1);
	await poll(`config.bquic.relay.enabled = '0'; answers['bquic.status'].relay = null; config.wifirr.ap0.enabled = 'off'; answers['wifirr.status'].schedulers = [];`);
	assert.deepEqual((await cards()).slice(1), [ 'Relay, off, Switch on', 'Scheduler on phy0-ap0, off, Switch on' ]);
	await poll(`config.wifirr.ap1 = { '.type': 'scheduler', '.name': 'ap1', device: 'phy1-ap0', enabled: '1' }; answers['wifirr.status'].schedulers = [ { device: 'phy1-ap0', why: 'paused', paused: true } ];`);
	assert.deepEqual((await cards()).slice(2), [ 'Scheduler on phy0-ap0, off, Switch on', 'Scheduler on phy1-ap0, paused, Switch off' ]);
	assert.deepEqual(errors, []);
	await page.close();
});

test('overview: a gateway without a section in the file is switched on', async () => {
	const { page, errors } = await open(1200, { 'bquic.status': { gateway: null, relay: null }, 'uci.commit': {} }, { ...config, bquic: { relay: config.bquic.relay } });

	await show(page, 'overview', 1);
	await page.locator('.bquic-card h3', { hasText: /^Gateway/ }).locator('button', { hasText: 'Switch on' }).click();
	await page.waitForFunction(() => window.env.did.some((d) => d[0] == 'uci.commit'));
	assert.deepEqual(await page.evaluate(() => window.env.did), [ [ 'add', 'bquic', 'gateway', 'gateway' ], [ 'set', 'bquic', 'gateway', 'enabled', '1' ], [ 'save' ], [ 'uci.commit', 'bquic' ] ]);
	assert.deepEqual(errors, []);
	await page.close();
});

test('a site that the gateway does not serve is on its pages', async () => {
	const was = recorded['bquic.status'], warning = 'bquic:9: @site[0].root: open /mnt/sda1: no such file or directory';
	const { page, errors } = await open(1200, { ...recorded, 'bquic.check': { ok: true }, 'bquic.status': { ...was, gateway: { ...was.gateway, warning } } }, config);

	for (const view of [ 'overview', 'gateway' ]) {
		await show(page, view, 2);
		assert.ok((await page.locator('.alert-message').last().textContent()).includes(warning), view);
		await page.evaluate(() => document.body.replaceChildren());
	}
	assert.deepEqual(errors, []);
	await page.close();
});

test('on its first day, a comparison is of today', async () => {
	const was = recorded['bquic.status'], proof = { ...was.relay.proof, days: 1 };
	const { page, errors } = await open(1200, { ...recorded, 'bquic.status': { ...was, relay: { ...was.relay, proof } } }, config);

	await show(page, 'proof', 2);
	assert.match(await page.textContent('body'), /12480 against 655, today\./);
	assert.deepEqual(errors, []);
});

test('what is much faster or much slower than the picture shows is at its edge', async () => {
	const was = recorded['bquic.status'], far = (change, low, high) => ({ carried: 99, direct: 99, complete: { change, low, high } });
	const proof = { ...was.relay.proof, overall: far(9, 8, 10), sizes: [ { from: 0, to: 1e5, ...far(-0.9, -0.95, -0.85) } ] };
	const { page, errors } = await open(1200, { ...recorded, 'bquic.status': { ...was, relay: { ...was.relay, proof } } }, config);

	await show(page, 'proof', 2);
	const ends = await page.$$eval('svg[aria-label^="All sizes"] rect, svg[aria-label^="less than 0.1 MB"] rect', (all) => all.map((r) => [ +r.getAttribute('x'), +r.getAttribute('x') + +r.getAttribute('width') ]));
	assert.deepEqual(ends, [ [ 198, 200 ], [ 0, 2 ] ]);
	assert.deepEqual(errors, []);
	await page.close();
});

test('by time of day: the hours of today’s time zone, also in summer', async () => {
	for (const [ today, hours ] of [ [ '2026-01-15T12:00:00Z', /^07:00 PM . 01:00 AM$/ ], [ '2026-07-15T12:00:00Z', /^08:00 PM . 02:00 AM$/ ] ]) {
		const { page, errors } = await open(1200, recorded, config);

		await (await page.context().newCDPSession(page)).send('Emulation.setTimezoneOverride', { timezoneId: 'Europe/Madrid' });
		await page.clock.setFixedTime(today);
		await show(page, 'proof', 2);
		/* 18 to 24 in UTC */
		assert.match((await page.locator('h3:has-text("By time of day") + * td').first().textContent()).replace(/\s/g, ' '), hours);
		assert.deepEqual(errors, []);
		await page.close();
	}
});

test('a daemon that does not answer for once is a gap in the graph, not a peak', async () => {
	assert.deepEqual(await traffic([ [ 100, 1e9 ], null, [ 102, 2e9 ], [ 104, 2.005e9 ] ]), { top: '≤ 20.0 Mbit/s', now: 'to clients: 20.0 Mbit/s' });
});

test('whether it helps: words, intervals, what the scheduler says, and an export without addresses', async () => {
	const why = 'larger windows: 12 of 14 clients aggregate';
	const gain = { permille: 1214, low: 1120, high: 1308, trials: 0, on: true }; /* exported, and not shown yet */
	const schedulers = [ { device: 'phy0-ap0', why: 'two clients with demand', contention: { why, gain } }, { device: 'phy1-ap0', contention: null } ];

	for (const width of [ 390, 1200 ]) {
		const { page, errors } = await open(width, { ...recorded, 'wifirr.status': { schedulers } }, config);
		await show(page, 'proof', 2);
		const drawn = await page.textContent('body');
		assert.doesNotMatch(drawn, /\d (%|MB)/, 'a number may be apart from its unit');
		const text = drawn.replaceAll('\u00a0', ' ');
		for (const part of [ 'Carried connections are 18 % faster (95 %: 12 to 23): 12480 against 655, last 7 days.', 'The relay helps here: leave it on.',
			'Page loads are 25 % faster (95 %: 16 to 33): 2100 against 110.', 'Pages by HTTP/2', 'Other applications',
			'Without an answer: 0.1 % of the carried connections, 1.1 % of the direct ones.', '0.1 to 1 MB', '21 % faster (95 %: 14 to 29)',
			'30 % slower (95 %: 10 to 50)', 'not certainly faster or slower (95 %: 3 % faster to 7 % slower)', 'not certainly more or less (95 %: 5 % less to 3 % more)', 'too few to compare', '10.9.0.0/24', why, 'two clients with demand', 'Scheduler on phy0-ap0' ])
			assert.ok(text.includes(part), `${part} in ${text}`);
		assert.ok(!text.includes('phy1-ap0'), 'a scheduler that says nothing is shown');
		assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= window.innerWidth), `wider than ${width}`);

		/* faster is left of the line, slower right of it, unsure across */
		const bars = await page.$$eval('svg.bquic-interval', (all) => all.map((svg) => [ svg.getAttribute('aria-label'), ...[ ...svg.querySelectorAll('rect') ].map((r) => [ +r.getAttribute('x') < 100, +r.getAttribute('x') + +r.getAttribute('width') > 100, r.getAttribute('class') ]) ]));
		assert.deepEqual(bars.slice(0, 7), [
			[ 'Pages by HTTP/2: 25 % faster (95 %: 16 to 33)', [ true, false, 'good' ] ],
			[ 'Other applications: too few to compare' ],
			[ 'All sizes: 18 % faster (95 %: 12 to 23)', [ true, false, 'good' ] ],
			[ 'less than 0.1 MB: not certainly faster or slower (95 %: 3 % faster to 7 % slower)', [ true, true, 'open' ] ],
			[ '0.1 to 1 MB: 21 % faster (95 %: 14 to 29)', [ true, false, 'good' ] ],
			[ '1 to 10 MB: 30 % slower (95 %: 10 to 50)', [ false, true, 'bad' ] ],
			[ 'more than 10 MB: too few to compare' ]
		]);

		const [ download ] = await Promise.all([ page.waitForEvent('download'), page.locator('button', { hasText: 'Export' }).click() ]);
		const exported = JSON.parse(fs.readFileSync(await download.path(), 'utf8'));
		assert.deepEqual([ exported.verdict, exported.overall.carried, exported.sizes.length, exported.clients.length ], [ 'faster', 12480, 4, 1 ]);
		assert.deepEqual(exported.schedulers, [ { device: 'phy0-ap0', gain: null, contention: { gain, rts_gain: null } }, { device: 'phy1-ap0', gain: null, contention: { gain: null, rts_gain: null } } ]);
		assert.doesNotMatch(JSON.stringify(exported), /10\.9\.0/);
		assert.deepEqual(errors, []);
		await page.close();
	}
});

test('whether it helps: no scheduler, no relay, nothing compared', async () => {
	const without = (proof) => ({ 'bquic.status': { gateway: null, relay: { ...recorded['bquic.status'].relay, proof } } });

	for (const [ answers, wants, uci ] of [
		[ { objects: [ 'bquic' ] }, 'The relay does not answer.' ],
		[ { objects: [ 'bquic' ], 'bquic.status': { gateway: null, relay: null } }, 'The relay is off.', { bquic: { relay: { '.type': 'relay', '.name': 'relay', enabled: '0' } } } ],
		[ without({ verdict: 'unsure', days: 0, uncompared: 12, overall: { carried: 0, direct: 0 }, sizes: [] }), 'Compare by hand' ],
		[ without({ verdict: 'unsure', days: 8, overall: { carried: 900, direct: 90, complete: { change: 0, low: -0.1, high: 0.1 } } }), 'A week has not shown' ],
		[ without({ verdict: 'unsure', days: 8, overall: { carried: 90, direct: 3, complete: null } }), 'A week has brought too few connections' ],
		[ without({ verdict: 'unsure', days: 2, overall: { carried: 90, direct: 0, complete: null }, unanswered: { carried: 0, carried_of: 90, direct: 9, direct_of: 9 } }), 'lets out only clients' ],
		[ without({ verdict: 'slower', days: 2, auto: false, overall: { carried: 900, direct: 90, complete: { change: 0.5, low: 0.2, high: 0.9 } } }), 'With “Direct when slower”' ],
		[ without(undefined), 'older than this page' ],
		[ without({ verdict: 'off', days: 0, overall: { carried: 0, direct: 0 }, sizes: [] }), 'Nothing is compared now' ],
		[ without({ verdict: 'unsure', days: 0, overall: { carried: 0, direct: 0 }, sizes: [] }), 'No connection has been compared in the last seven days' ],
		[ without({ verdict: 'spared', days: 1, overall: { carried: 9, direct: 9, complete: { change: 0.5, low: 0.2, high: 0.9 } } }), '50 % slower (95 %: 20 to 90): 9 against 9' ]
	]) {
		const { page, errors } = await open(1200, answers, uci ?? config);
		await show(page, 'proof', 2);
		const text = (await page.innerText('body')).replaceAll('\u00a0', ' ');
		assert.ok(text.includes(wants), `${wants} in ${text}`);
		assert.ok(!text.includes('own comparison'), 'a scheduler that is not there is shown');
		assert.equal(text.includes('By size'), !!answers['bquic.status']?.relay?.proof, wants); /* no empty tables */
		assert.equal(await page.locator('button[disabled]', { hasText: 'Export' }).count(), answers['bquic.status']?.relay?.proof ? 0 : 1);
		assert.deepEqual(errors, []);
		await page.close();
	}
});

test('whether it helps: without the package of the relay, what the scheduler says alone', async () => {
	const { page, errors } = await open(1200, { 'wifirr.status': recorded['wifirr.status'] }, {});

	await show(page, 'proof', 2);
	const text = await page.innerText('body');
	assert.match(text, /own comparison/);
	assert.doesNotMatch(text, /relay|Page loads/);
	const [ download ] = await Promise.all([ page.waitForEvent('download'), page.locator('button', { hasText: 'Export' }).click() ]);
	assert.deepEqual(Object.keys(JSON.parse(fs.readFileSync(await download.path(), 'utf8'))), [ 'schedulers' ]);
	assert.deepEqual(errors, []);
});

test('the scheduler’s levers: what each gains, and whether it is used for that; nothing of what was not tried', async () => {
	const lines = async (view, answers) => {
		const { page, errors } = await open(1200, answers, config);
		await show(page, view, 1);
		const found = await page.$$eval('.bquic-card p', (all) => all.map((p) => p.textContent).filter((t) => /^(Larger windows|RTS|Turns):/.test(t)));
		assert.deepEqual(errors, []);
		await page.close();
		return found;
	};
	const gain = (permille, low, high, on) => ({ permille, low, high, trials: 6, on });
	const told = (turns, windows, rts) => ({ 'wifirr.status': { schedulers: [ { device: 'phy0-ap0', why: 'paused', gain: turns, contention: { why: 'paused', gain: windows, rts_gain: rts } } ] } });

	for (const view of [ 'overview', 'proof' ]) {
		assert.deepEqual(await lines(view, told(gain(853, 802, 904, false), gain(1214, 1120, 1308, true), gain(1032, 984, 1080, false))), [
			'Larger windows: used. Delivered with it: 21 % more (12 to 31), trials: 6.',
			'RTS: not used until it is certain that it gains. Delivered with it: between 2 % less and 8 % more, trials: 6.',
			'Turns: not used: more is delivered without it. Delivered with it: 15 % less (10 to 20), trials: 6.'
		]);
		assert.deepEqual(await lines(view, told(gain(1050, 900, 1200, true), null, gain(980, 700, 1260, true))), [
			'RTS: used until it is certain that it gains too little. Delivered with it: between 30 % less and 26 % more, trials: 6.',
			'Turns: used until it is certain that it gains too little. Delivered with it: between 10 % less and 20 % more, trials: 6.'
		]);
		/* twice the standard error of the first two trials may be more than their mean */
		assert.deepEqual(await lines(view, told(gain(2100, -587, 4787, false), gain(80, -120, 280, false), null)), [
			'Larger windows: not used: more is delivered without it. Delivered with it: 92 % less (72 to 100), trials: 6.',
			'Turns: not used until it is certain that it gains. Delivered with it: between 100 % less and 379 % more, trials: 6.'
		]);
		assert.deepEqual(await lines(view, told(null, null, null)), []);
	}
	assert.deepEqual(await lines('overview', { 'wifirr.status': { schedulers: [ { device: 'phy0-ap0', why: 'paused', contention: null } ] } }), []);
});

test('overview: why clients take turns, or all are paused, while larger windows shrink', async () => {
	const contention = { windows: true, why: 'clients that contend: 14' };

	for (const [ more, state, why ] of [
		[ { throttling: false, engaged: false }, 'clients wait longer before they send (larger windows)', 'clients that contend: 14' ],
		[ { why: 'clients with demand: 6, more than 3' }, 'clients take turns', 'clients with demand: 6, more than 3' ],
		[ { paused: true, throttling: false, why: 'paused' }, 'paused', 'paused' ]
	]) {
		const { page, errors } = await open(1200, { 'wifirr.status': { schedulers: [ { ...recorded['wifirr.status'].schedulers[0], contention, ...more } ] } }, config);

		await show(page, 'overview', 1);
		const card = page.locator('.bquic-card', { hasText: 'Scheduler on' });
		assert.deepEqual([ await card.locator('.bquic-state').textContent(), await card.locator('p', { hasText: 'Why:' }).textContent() ], [ state, `Why: ${why}` ]);
		assert.deepEqual(errors, []);
		await page.close();
	}
});

test('graphs of the last hours: of all daemons, whatever they do not tell; what has nothing to show is not there', async () => {
	const hours = (...values) => [ ...Array(716).fill(null), ...values ];
	const schedulers = [
		{ device: 'a', clients_with_demand: hours(1, 2, 3, 4.5), clients_served: hours(1, 1, 1, 1), busy_permille: hours(null, null, 300, 500) },
		{ device: 'b', clients_with_demand: [ 10 ], clients_served: [ 2 ], busy_permille: 'x' }
	];
	const answers = {
		'bquic.history': { gateway: { down_bps: hours(1e6, 2e6, null, 8e6), up_bps: [ 5 ] }, relay: { down_bps: [ 1e6, 4e6 ], packets_per_ack: null } },
		'wifirr.history': { schedulers }
	};
	const { page, errors } = await open(1200, answers, config);
	await show(page, 'overview', 1);
	const graphs = Object.fromEntries(await page.$$eval('.bquic-graph', (all) => all.map((g) => [ g.querySelector('strong').textContent,
		[ g.hidden, g.querySelector('.top').textContent.replaceAll('\u00a0', ' '), ...[ ...g.querySelectorAll('path') ].map((l) => l.getAttribute('d')) ] ])));

	/* 8 from the gateway and 4 from the relay in the newest minute; missing values are gaps */
	assert.deepEqual(graphs['Traffic through gateway and relay'], [ false, '≤ 20.0 Mbit/s', 'M298.8,95.0 299.2,90.0 299.6,95.0 300.0,40.0', 'M300.0,100.0h.1' ]);
	assert.deepEqual(graphs['WiFi clients'], [ false, '≤ 20', 'M298.8,95.0 299.2,90.0 299.6,85.0 300.0,27.5', 'M298.8,95.0 299.2,95.0 299.6,95.0 300.0,85.0' ]);
	assert.deepEqual(graphs['Channel use'], [ false, '≤ 100 %', 'M299.6,70.0 300.0,50.0', '' ]);
	assert.equal(graphs['Round-trip time'][0], true);
	assert.equal(graphs['Data packets per acknowledgement'][0], true);
	await page.locator('button', { hasText: '5 minutes' }).click();
	assert.deepEqual(await page.$$eval('[aria-pressed=true]', (all) => all.map((b) => b.textContent)), [ '5 minutes' ]);
	assert.equal(await page.locator('.bquic-graph:visible path[d]:not([d=""])').count(), 0);
	assert.deepEqual(errors, []);
});

test('graphs of the last hours: half an hour takes a twenty-fourth of the width', async () => {
	const { page, errors } = await open(1200, { 'bquic.history': { gateway: { down_bps: Array(30).fill(1e6), up_bps: [] } } }, config);

	await show(page, 'overview', 1);
	const points = (await page.locator('.bquic-graph', { hasText: 'Traffic' }).locator('path').first().getAttribute('d')).slice(1).split(' ').map((p) => +p.split(',')[0]);
	assert.deepEqual([ points.length, points[0], points.at(-1) ], [ 30, 287.9, 300 ]);
	assert.deepEqual(errors, []);
	await page.close();
});

test('on pages of settings: what keeps a change from being used, in the daemon’s words, or that it is used', async () => {
	const gateway = recorded['bquic.status'].gateway;
	const taken = 'gateway.listen: cannot listen on :80: address already in use';

	for (const [ view, answers, wants, not, uci ] of [
		[ 'gateway', { 'bquic.check': { ok: false, mistakes: [ { text: taken } ] }, 'bquic.status': { gateway } }, [ taken, '/etc/config/bquic: running daemons keep' ], 'line 0' ],
		[ 'gateway', { 'bquic.check': { ok: false, mistakes: [ { text: taken } ] }, 'bquic.status': { gateway } }, [ 'running' ], 'runs with' ],
		[ 'gateway', { 'bquic.check': { ok: true }, 'bquic.status': { gateway: { ...gateway, reload: { at: '2026-01-02T13:04:05Z', error: '' } } } }, [ 'runs with these settings, since 1/2/2026, ' ], 'Mistakes' ],
		[ 'gateway', { 'bquic.check': { ok: true }, 'bquic.status': { gateway: { ...gateway, reload: { error: 'bquic:7: x' } } } }, [ 'The last change was refused', 'bquic:7: x' ], 'runs with' ],
		[ 'gateway', { 'bquic.check': { ok: true }, 'bquic.status': {} }, [ 'no answer', 'Open the log' ], 'runs with' ],
		[ 'relay', { 'bquic.check': { ok: true }, 'bquic.status': recorded['bquic.status'] }, [ 'runs with these settings' ], 'no answer' ],
		[ 'scheduler', { 'wifirr.check': { mistakes: [ '/etc/config/wifirr: section ap0: rate: must be given' ] }, 'wifirr.status': { schedulers: [] } },
			[ 'section ap0: rate: must be given', 'It is waiting for the device phy0-ap0' ], 'runs with' ],
		[ 'scheduler', { 'wifirr.check': { mistakes: [] }, 'wifirr.status': recorded['wifirr.status'] }, [ 'phy0-ap0', 'runs with these settings' ], 'Mistakes' ],
		[ 'scheduler', { 'wifirr.check': { mistakes: [] }, 'wifirr.status': { schedulers: [] } }, [ 'off' ], 'no answer', { wifirr: {} } ]
	]) {
		const { page, errors } = await open(1200, answers, uci ?? config);
		await show(page, view, 1);
		await afterStart(page);
		const text = await page.textContent('body');
		for (const part of wants)
			assert.ok(text.includes(part), `${view}: ${part} in ${text}`);
		assert.ok(!text.includes(not), `${view}: ${not} in ${text}`);
		assert.deepEqual(errors, []);
		await page.close();
	}
});

test('on pages of settings: what has just been switched on has some seconds to answer', async () => {
	for (const view of [ 'gateway', 'relay', 'scheduler' ]) {
		const { page, errors } = await open(1200, { objects: [ 'bquic', 'wifirr' ], 'bquic.status': { gateway: null, relay: null }, 'wifirr.status': { schedulers: [] } }, config);
		const states = () => page.$$eval('.bquic-state', (all) => all.map((s) => [ s.textContent, s.className ].join('|')));

		await show(page, view, 1);
		assert.deepEqual(await states(), [ 'Waiting for an answer…|bquic-state ' ], view);
		await afterStart(page);
		assert.deepEqual(await states(), [ 'no answer|bquic-state bad' ], view);
		assert.deepEqual(errors, []);
		await page.close();
	}
});

test('on pages of settings: what is known of the daemon stays when the form is drawn anew', async () => {
	for (const [ view, said ] of [ [ 'gateway', 'bquic.status' ], [ 'relay', 'bquic.status' ], [ 'scheduler', 'wifirr.status' ] ]) {
		const { page, errors } = await open(1200, { ...recorded, 'bquic.check': { mistakes: [] }, 'wifirr.check': { mistakes: [] } }, config);
		const states = () => page.locator('.cbi-map > .cbi-map-descr + .bquic-card .bquic-state').allTextContents();

		await show(page, view, 1);
		assert.equal((await states()).length, 1, view);
		await page.evaluate(() => window.env.sections[0].map.reset());
		assert.match((await states()).join(), /^runs with these settings/, view);
		/* and goes on */
		await page.evaluate((said) => { window.answers[said] = {}; }, said);
		await afterStart(page);
		assert.deepEqual(await states(), [ 'no answer' ], view);
		assert.deepEqual(errors, []);
		await page.close();
	}
});

test('the gateway’s page shows the pin as soon as the gateway runs, and tests with it', async () => {
	const { gateway } = recorded['bquic.status'], result = { url: 'https://h:8443/', status: 200, bytes: 5, mbps: 1, handshake_ms: 2, data_per_ack: 3 };
	const { page, errors } = await open(1200, { 'bquic.check': { ok: true }, 'bquic.status': { gateway: null }, 'bquic.fetch': { result } }, config);
	const field = page.locator('[data-name="_pin"]');

	await show(page, 'gateway', 1);
	assert.match(await field.textContent(), /shown while the gateway runs/);
	await page.evaluate(async (gateway) => {
		window.answers['bquic.status'] = { gateway };
		for (const poll of window.env.polls)
			await poll();
	}, gateway);
	assert.equal(await field.locator('code').textContent(), gateway.pin);
	await page.locator('[data-name="_test"] button').click();
	assert.deepEqual(await page.evaluate(() => window.env.did), [ [ 'bquic.fetch', 'https://localhost:8443/', gateway.pin, '', '' ] ]);
	assert.deepEqual(errors, []);
	await page.close();
});

test('the gateway’s test begins with an address on which the gateway listens', async () => {
	const { gateway } = recorded['bquic.status'], result = { url: 'https://h:8443/', status: 200, bytes: 5, mbps: 1, handshake_ms: 2, data_per_ack: 3 };

	for (const [ listen, url ] of [
		[ undefined, 'https://localhost:8443/' ], [ ':443', 'https://localhost:443/' ], [ '0.0.0.0:9443', 'https://localhost:9443/' ], [ '[::]:9443', 'https://localhost:9443/' ],
		[ '10.1.2.3:8443', 'https://10.1.2.3:8443/' ], [ '[fd00::1]:443', 'https://[fd00::1]:443/' ]
	]) {
		const { page, errors } = await open(1200, { 'bquic.check': { ok: true }, 'bquic.status': { gateway }, 'bquic.fetch': { result } },
			{ bquic: { gateway: { '.type': 'gateway', '.name': 'gateway', enabled: '1', ...listen && { listen } } } });

		await show(page, 'gateway', 1);
		await page.locator('[data-name="_test"] button').click();
		assert.deepEqual(await page.evaluate(() => window.env.did), [ [ 'bquic.fetch', url, gateway.pin, '', '' ] ], listen);
		assert.deepEqual(errors, []);
		await page.close();
	}
});

test('sections of gateway and relay may have any name', async () => {
	const bquic = {
		g: { '.type': 'gateway', '.name': 'g', enabled: '1', listen: ':9443' },
		cfg0123: { '.type': 'relay', '.name': 'cfg0123', enabled: '1', gateway: 'g:8443', token: 't', port: '12555' }
	};

	for (const [ view, option, value ] of [ [ 'gateway', 'listen', ':9443' ], [ 'relay', 'port', '12555' ] ]) {
		const { page, errors } = await open(1200, { ...recorded, 'bquic.check': { ok: true } }, { ...config, bquic });

		await show(page, view, 1);
		assert.equal(await page.locator(`[data-name="${option}"] input`).first().inputValue(), value);
		assert.deepEqual(errors, []);
		await page.close();
	}
	for (const [ card, name ] of [ [ /^Gateway/, 'g' ], [ /^Relay/, 'cfg0123' ] ]) {
		const { page, errors } = await open(1200, { ...recorded, 'bquic.status': {}, 'uci.commit': {} }, { ...config, bquic });

		await show(page, 'overview', 1);
		await page.locator('.bquic-card h3', { hasText: card }).locator('button', { hasText: 'Switch off' }).click();
		await page.waitForFunction(() => window.env.did.length > 0);
		assert.deepEqual((await page.evaluate(() => window.env.did))[0], [ 'set', 'bquic', name, 'enabled', '0' ]);
		assert.deepEqual(errors, []);
		await page.close();
	}
});

test('a relay that is switched on needs a gateway that is not switched off', async () => {
	for (const [ enabled, refused ] of [ [ '1', null ], [ '0', /gateway: A relay that is switched on needs a gateway/ ] ]) {
		const { page, errors } = await open(1200, recorded, { bquic: {
			relay: { '.type': 'relay', '.name': 'relay', enabled: '1', token: 'first-token', pin: [ `sha256/${'A'.repeat(43)}=` ] },
			u: { '.type': 'upstream', '.name': 'u', gateway: 'g:8443', enabled }
		} });

		await show(page, 'relay', 0);
		const said = await page.evaluate(() => { try { window.env.apply(); } catch (err) { return err.message; } });
		assert.match(said ?? '', refused ?? /^$/);
		assert.deepEqual(errors, []);
		await page.close();
	}
});

test('a relay that is switched on needs a token', async () => {
	for (const [ enabled, token, refused ] of [ [ '1', '', /token: A relay that is switched on needs a token/ ], [ '0', '', /^$/ ], [ '1', 'first-token', /^$/ ] ]) {
		const { page, errors } = await open(1200, recorded, { bquic: {
			relay: { '.type': 'relay', '.name': 'relay', enabled, gateway: [ 'g:8443' ], pin: [ `sha256/${'A'.repeat(43)}=` ], token }
		} });

		await show(page, 'relay', 0);
		assert.match(await page.evaluate(() => { try { window.env.apply(); } catch (err) { return err.message; } }) ?? '', refused);
		assert.deepEqual(errors, []);
		await page.close();
	}
});

test('what keeps a scheduler from working well is an alert, on the overview and beside its settings', async () => {
	const warning = 'hardware flow offload is on: offloaded traffic bypasses the scheduler';

	for (const view of [ 'overview', 'scheduler' ])
		for (const [ said, alerts ] of [
			[ { warning }, [ `It works less well than it could: ${warning}` ] ],
			[ { warning, reload: { error: 'rate: must be given' } }, [ 'The last change was refused; the previous settings stay in use: rate: must be given', `It works less well than it could: ${warning}` ] ],
			[ { warning: null }, [] ]
		]) {
			const { page, errors } = await open(1200, { 'wifirr.check': { mistakes: [] }, 'wifirr.status': { schedulers: [ { ...recorded['wifirr.status'].schedulers[0], ...said } ] } }, config);

			await show(page, view, 1);
			assert.deepEqual(await page.$$eval('p.alert-message', (all) => all.map((p) => p.textContent)), alerts, view);
			assert.deepEqual(errors, []);
			await page.close();
		}
});

test('a relay that sees none of its clients says so on the overview and beside its settings', async () => {
	const { relay } = recorded['bquic.status'];

	for (const view of [ 'overview', 'relay' ])
		for (const [ unseen, alerts ] of [
			[ { why: 'apart', reason: 'x' }, [ 'The relay sees none of its clients’ connections: routing rules of this node send them another way than its own connections.' ] ],
			[ { why: 'no device', reason: 'x' }, [ 'The relay sees none of its clients’ connections: one of the devices does not exist.' ] ],
			[ { why: 'of a newer relay', reason: '<b>said</b>' }, [ 'The relay sees none of its clients’ connections: <b>said</b>.' ] ],
			[ undefined, [] ]
		]) {
			const { page, errors } = await open(1200, { 'bquic.check': { ok: true, mistakes: [] }, 'bquic.status': { relay: { ...relay, unseen } } }, config);

			await show(page, view, 1);
			assert.deepEqual(await page.$$eval('p.alert-message', (all) => all.map((p) => p.textContent)), alerts, view);
			assert.deepEqual(errors, []);
			await page.close();
		}
});

test('a relay says what makes its clients’ connections slow', async () => {
	const { relay } = recorded['bquic.status'];
	const late = 'Connections that waited in vain for the gateway’s answer, and went direct after 1.5 s: 3 since the start.';

	for (const view of [ 'overview', 'relay' ])
		for (const [ of, says ] of [
			[ {}, [] ],
			[ { limit: 341, late: 3, carried: { now: 340 }, direct: { now: 0 } }, [ late ] ],
			[ { limit: 341, late: 0, carried: { now: 340 }, direct: { now: 1 } }, [ 'All 341 places for connections are taken: others go direct.' ] ]
		]) {
			const { page, errors } = await open(1200, { 'bquic.check': { ok: true, mistakes: [] }, 'bquic.status': { relay: { ...relay, ...of } } }, config);

			await show(page, view, 1);
			assert.deepEqual(await page.$$eval('p', (all) => all.map((p) => p.textContent).filter((text) => /places|in vain/.test(text))), says, view);
			assert.deepEqual(errors, []);
			await page.close();
		}
});

test('a second section for the same hardware has no scheduler of its own, which is no fault', async () => {
	const section = (device, more) => ({ '.type': 'scheduler', '.name': device, device, enabled: '1', ...more });
	const said = (...running) => ({
		'wifirr.check': { mistakes: [] },
		'wifirr.status': { schedulers: running.map((device) => ({ ...recorded['wifirr.status'].schedulers[0], device })) },
		...Object.fromEntries([ 'phy0-ap0', 'phy0-ap1', 'phy1-ap0' ].map((device) => [ `iwinfo.info ${device}`, { phy: device.slice(0, 4) } ]))
	});
	const silent = 'no answer It is waiting', together = 'no scheduler beside that of phy0-ap0 Their WiFi hardware has one scheduler';

	for (const view of [ 'overview', 'scheduler' ])
		for (const [ answers, more, wants ] of [
			[ said('phy0-ap0'), {}, together ],
			[ said('phy0-ap0'), { device: 'phy1-ap0' }, silent ],
			[ said('phy0-ap0'), { device: 'phy9-ap0' }, silent ],
			[ said('phy1-ap0'), {}, silent ],
			[ said(), {}, silent ],
			[ said('phy0-ap0'), { backend: 'htb' }, together ],
			/* the init script starts a daemon for it */
			[ said('phy0-ap0'), { match: 'ip' }, silent ],
			[ said('phy0-ap0'), { enabled: '0' }, 'off' ]
		]) {
			const wifirr = Object.fromEntries([ section('phy0-ap0'), section('phy1-ap0'), section('phy0-ap1', more) ].map((s) => [ s['.name'], s ]));
			const { page, errors } = await open(1200, answers, { ...config, wifirr });

			await show(page, view, 1);
			await afterStart(page);
			const state = page.locator(view == 'overview' ? '.bquic-cards:not(.bquic-graphs) > .bquic-card:last-child > .bquic-state' : '.cbi-map > .bquic-card .bquic-state').last();
			const text = await state.evaluate((e) => `${e.textContent} ${e.nextElementSibling?.textContent ?? ''}`);
			assert.equal(text.slice(0, wants.length), wants, `${view} ${JSON.stringify(more)}`);
			assert.equal(await state.getAttribute('class'), `bquic-state ${wants == silent ? 'bad' : ''}`, view);
			assert.deepEqual(errors, []);
			await page.close();
		}
});

test('what the daemons say is no wider than a phone', async () => {
	const text = `/srv/${'a-directory'.repeat(20)}/site.pem`, address = `[fd00:${'1234:'.repeat(6)}5678]:8443`;
	const answers = { ...recorded, 'bquic.check': { mistakes: [ { line: 3, section: 'gateway', option: 'certificate', text } ] }, 'wifirr.check': { mistakes: [ text ] },
		'file.exec': { code: 1, stderr: text } };

	for (const [ view, fetched ] of [ [ 'overview' ], [ 'scheduler' ], [ 'log' ], [ 'relay', { error: `wrong pin: the server's key is sha256/${'A'.repeat(43)}=, for ${address}` } ],
		[ 'gateway', { result: { url: `https://${address}/`, status: 200, bytes: 5, mbps: 1, handshake_ms: 2, data_per_ack: 3 } } ] ]) {
		const { page, errors } = await open(320, { ...answers, 'bquic.fetch': fetched }, config);

		await show(page, view, 2);
		if (fetched) {
			await page.locator('button', { hasText: 'Test from here' }).click();
			await page.waitForFunction(() => window.env.did.length > 0);
		}
		await page.waitForTimeout(100);
		assert.deepEqual(await page.evaluate(() => [ ...document.querySelectorAll('body *') ].filter((e) => e.scrollWidth > window.innerWidth).map((e) => e.outerHTML.slice(0, 200))), [], view);
		assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= window.innerWidth), view);
		assert.deepEqual(errors, []);
		await page.close();
	}
});

test('a profile that the router does not tell stays what it is', async () => {
	const bquic = {
		relay: { '.type': 'relay', '.name': 'relay', enabled: '1', gateway: [ 'g:8443' ], token: 'first-token', pin: [ `sha256/${'A'.repeat(43)}=` ], profile: 'standard' },
		calm: { '.type': 'profile', '.name': 'calm', base: 'bquic-2019' }
	};
	const { page, errors } = await open(1200, { 'bquic.status': {} }, { bquic });

	await show(page, 'relay', 0);
	assert.deepEqual(await page.evaluate(() => {
		window.env.apply();

		return [ window.config.bquic.relay.profile, window.config.bquic.calm.base ];
	}), [ 'standard', 'bquic-2019' ]);
	assert.deepEqual(errors, []);
	await page.close();
});

test('settings that cannot be read, although their package is there', async () => {
	for (const [ view, file, name ] of [ [ 'gateway', 'bquic', 'bquic-gateway' ], [ 'relay', 'bquic', 'bquic-gateway' ], [ 'scheduler', 'wifirr', 'wifirr-sched' ] ]) {
		const { page, errors } = await open(1200, { ...recorded, objects: [ 'bquic', 'wifirr' ] }, {});

		await show(page, view, 1);
		const text = await page.innerText('body');
		assert.ok(text.includes(`/etc/config/${file} cannot be read: reload this page.`) && text.includes(name), text);
		assert.doesNotMatch(text, /is not installed/);
		assert.deepEqual(errors, []);
		await page.close();
	}
});

test('settings of what is not installed have no buttons that save', async () => {
	for (const view of [ 'gateway', 'relay', 'scheduler' ]) {
		const { page, errors } = await open(1200, {}, {});
		assert.deepEqual(await page.evaluate(async (view) => {
			const v = window.env.load(`view.bquic.${view}`);
			await v.render(await v.load());
			return [ v.handleSave, v.handleSaveApply, v.handleReset ];
		}, view), [ null, null, null ]);
		assert.deepEqual(errors, []);
		await page.close();
	}
});

test('clients: which of several access points a client is on', async () => {
	const at = (device, ...on) => ({ device, clients: on.map((where, i) => ({ client: `02:00:00:00:0${i}:${device.slice(-2)}`, interface: where, state: 'open' })) });

	for (const width of [ 390, 1200 ])
		for (const [ schedulers, wants ] of [
			[ [ at('phy0-ap0', 'phy0-ap0', 'phy0-ap0') ], [] ],
			[ [ at('phy0-ap0', undefined) ], [] ],
			[ [ at('phy0-ap0', 'phy0-ap0', 'phy0-ap1') ], [ 'phy0-ap0', 'phy0-ap1' ] ],
			[ [ at('phy0-ap0', undefined), at('phy1-ap1', null) ], [ 'phy0-ap0', 'phy1-ap1' ] ]
		]) {
			const { page, errors } = await open(width, { ...recorded, 'wifirr.clients': { schedulers } }, config);

			await show(page, 'clients', 2);
			assert.deepEqual((await page.locator('tbody tr').allInnerTexts()).flatMap((row) => row.match(/phy\d-ap\d/g) ?? []), wants);
			assert.equal((await page.innerText('body')).includes('Device'), wants.length > 0 && width > 768);
			assert.deepEqual(errors, []);
			await page.close();
		}
});

test('clients have the names that the router knows, also when it did not answer for a while', async () => {
	const address = recorded['bquic.status'].relay.clients[0].address, mac = recorded['wifirr.clients'].schedulers[0].clients[0].client;
	const answers = { ...recorded, 'luci-rpc.getHostHints': { [mac.toUpperCase()]: { name: 'anna-phone', ipaddrs: [ address ] } } };
	const { page, errors } = await open(1200, answers, config);

	for (const [ view, client ] of [ [ 'relay', address ], [ 'clients', mac ] ]) {
		await restart(page, answers, config);
		await show(page, view, 2);
		assert.match(await page.locator('tr', { hasText: client }).textContent(), /^anna-phone/);
		await page.evaluate(async () => {
			window.answers.away = true;
			for (const poll of window.env.polls)
				await poll();
			window.answers.away = false;
			await window.env.polls.at(-1)(); /* which asks for the clients, and not for their names */
		});
		assert.match(await page.locator('tr', { hasText: client }).textContent(), /^anna-phone/);
		assert.deepEqual(errors, []);
	}
});

test('a relay’s clients keep their rows, whichever of them was the last to connect', async () => {
	const { relay } = recorded['bquic.status'], client = (address) => ({ address, connections: 1, sent: 1, received: 2 });
	const [ nine, ten, six ] = [ '10.9.0.9', '10.9.0.10', 'fd00::6' ].map(client);
	const { page, errors } = await open(1200, { ...recorded, 'bquic.check': { mistakes: [] } }, config);
	const rows = (clients) => page.evaluate(async (relay) => {
		window.answers['bquic.status'] = { relay };
		for (const poll of window.env.polls)
			await poll();
		return [ ...document.querySelectorAll('table') ].at(-1).innerText.match(/10\.9\.0\.\d+|fd00::6|all others/g);
	}, { ...relay, clients, others: client() });

	await show(page, 'relay', 1);
	for (const clients of [ [ ten, six, nine ], [ nine, ten, six ] ])
		assert.deepEqual(await rows(clients), [ '10.9.0.9', '10.9.0.10', 'fd00::6', 'all others' ]);
	assert.deepEqual(errors, []);
	await page.close();
});

test('the log: latest first, errors only, searched, and never markup', async () => {
	const stdout = [
		'Tue Nov 24 20:34:47 2026 daemon.info bquic[42]: level=INFO msg="gateway ready"',
		'Tue Nov 24 20:34:47 2026 daemon.err bquic[42]: level=WARN msg="no gateway answers"',
		/* LuCI's own */
		'Tue Nov 24 20:34:47 2026 authpriv.info dispatcher.uc: luci: accepted login on /admin/services/bquic/log for root from 10.0.0.2',
		'Tue Nov 24 20:34:48 2026 daemon.err wifirrd[7]: wifirrd: no such device',
		'Tue Nov 24 20:34:48 2026 daemon.err wifirrd[7]: wifirrd: no such device',
		/* how a daemon ended, which it cannot say itself */
		'Tue Nov 24 20:34:49 2026 kern.err kernel: [ 1042.402101] Out of memory: Killed process 1889 (bquic) total-vm:1240000kB',
		'Tue Nov 24 20:34:50 2026 daemon.info procd: Instance bquic-gateway::relay pid 1889 not stopped on SIGTERM, sending SIGKILL instead',
		`a line of another form ${markup.replace('\n', '')}`
	].join('\n') + '\n';
	const { page, errors } = await open(1200, { 'file.exec': { code: 0, stdout } }, config);
	const rows = () => page.$$eval('tbody tr', (all) => all.map((r) => [ ...r.cells ].map((c) => c.textContent)));

	await show(page, 'log', 2);
	const all = await rows();
	assert.equal(all.length, 7);
	assert.match(all[0][3], /^a line of another form <img/);
	assert.deepEqual(all.slice(1, 3).map((row) => row[2]), [ 'procd', 'kernel' ]);
	assert.ok((await page.$$eval('th', (all) => all.map((th) => th.getClientRects()[0].height))).every((height) => height < 40), 'a title is broken');
	assert.deepEqual(all.slice(5), [ [ 'Tue Nov 24 20:34:47 2026', 'warn', 'bquic', 'msg="no gateway answers"' ], [ 'Tue Nov 24 20:34:47 2026', 'info', 'bquic', 'msg="gateway ready"' ] ]);
	assert.equal(await page.evaluate(() => window.executed), false);
	await page.locator('label').click();
	assert.deepEqual((await rows()).map((r) => r[1]), [ 'err', 'err', 'err', 'warn' ]);
	await page.locator('[type=search]').fill('GATEWAY READY');
	/* not "nothing yet": there are others */
	assert.deepEqual(await rows(), [ [ 'No lines.' ] ]);
	await page.locator('label').click();
	assert.equal((await rows()).length, 1);
	assert.deepEqual(errors, []);
});

test('the log: what is too long for rpcd is asked for in part', async () => {
	const { page, errors } = await open(1200, { objects: [ 'file' ], 'file.exec /sbin/logread -l,1000,-e,bquic\\|wifirr': { stdout: 'Tue Nov 24 20:34:47 2026 daemon.info bquic[42]: the latest\n' } }, config);

	await show(page, 'log', 2);
	assert.deepEqual(await page.$$eval('tbody tr', (all) => all.map((r) => r.cells[3]?.textContent)), [ 'the latest' ]);
	assert.deepEqual(errors, []);
	await page.close();
});

test('reasons of the scheduler in the user’s language', async () => {
	const { page, errors } = await open(1200, recorded, config);
	await page.evaluate(() => { window.env = window.luci((name) => window.sources[name], window.answers, window.config, (text) => `«${text}»`); });
	await show(page, 'overview', 2);
	assert.ok((await page.textContent('body')).includes('«clients with demand: 6, more than 3»'));
	assert.deepEqual(errors, []);
});

test('the token, made anew, and the pin are copied from the gateway’s page as they are', async () => {
	const pin = 'sha256/<b>=';
	const { page, errors } = await open(600, { ...recorded, 'bquic.status': { gateway: { ...recorded['bquic.status'].gateway, pin } } }, config);
	const press = (option, name) => page.evaluate(([ option, name ]) => {
		let copied = null;
		const listen = () => { copied = document.activeElement.value; };
		const button = [ ...document.querySelectorAll(`[data-name="${option}"] button`) ].find((b) => b.textContent == name);

		document.addEventListener('copy', listen, { once: true });
		button.click();
		document.removeEventListener('copy', listen);
		return [ copied, button.textContent ];
	}, [ option, name ]);

	await show(page, 'gateway', 1);
	assert.deepEqual(await press('_pin', 'Copy'), [ pin, 'Copied.' ]);
	assert.deepEqual(await press('token', 'Copy'), [ null, 'Nothing to copy.' ]);
	await press('token', 'Generate');
	const token = await page.locator('[data-name="token"] input').inputValue();
	assert.match(token, /^[A-Za-z0-9_-]{32}$/);
	await page.waitForFunction(() => [ ...document.querySelectorAll('[data-name="token"] button') ].some((b) => b.textContent == 'Copy'));
	assert.deepEqual(await press('token', 'Copy'), [ token, 'Copied.' ]);
	assert.deepEqual(errors, []);
});

test('every button of every page does something, and no page has others', async () => {
	const answers = { ...recorded, 'uci.commit': {}, 'wifirr.pause': {}, 'wifirr.resume': {},
		'bquic.fetch': { result: { url: 'https://g:8443/', status: 200, bytes: 5, mbps: 1, handshake_ms: 2, data_per_ack: 3 } } };
	const pressed = {};

	for (const view of fs.readdirSync(path.resolve(__dirname, '../htdocs/luci-static/resources/view/bquic')).map((f) => path.parse(f).name)) {
		for (let i = 0, n = 1; i < n; i++) {
			const { page, errors } = await open(1200, answers, config);

			await page.evaluate(() => {
				window.seen = '';
				document.addEventListener('copy', () => { window.seen += 'copied'; });
				const click = HTMLAnchorElement.prototype.click;
				HTMLAnchorElement.prototype.click = function() { window.seen += this.download; click.call(this); };
			});
			await show(page, view, 2);

			/* the chosen range is chosen already */
			const buttons = page.locator('button:visible:not([aria-pressed=true])');
			n = await buttons.count();
			if (i < n) {
				const state = () => page.evaluate(() => JSON.stringify([ window.seen, window.env.did, document.body.outerHTML,
					...[ ...document.querySelectorAll('input') ].map((i) => i.value) ]));
				const name = await buttons.nth(i).textContent(), before = await state();

				await buttons.nth(i).click();
				for (let t = 0; t < 1200 && await state() == before; t++)
					await page.waitForTimeout(50);
				assert.ok(await state() != before, `${view}: ${name} does nothing`);
				(pressed[view] ??= []).push(name);
			}
			assert.deepEqual(errors, []);
			await page.close();
		}
	}
	assert.deepEqual(pressed, {
		gateway: [ 'Copy', 'Test from here', 'Generate', 'Copy' ],
		overview: [ 'Switch off', 'Switch off', 'Switch off', 'Pause all schedulers', '5 minutes' ],
		proof: [ 'Export' ],
		relay: [ 'Test from here' ]
	});
});

test('changes that are saved but not applied: what runs, and not that something fails', async () => {
	const changes = { bquic: [ [ 'set', 'relay', 'enabled', '1' ] ], wifirr: [ [ 'set', 'ap0', 'enabled', '1' ] ] };
	const set = (enabled) => ({ bquic: { gateway: { ...config.bquic.gateway, enabled }, relay: { ...config.bquic.relay, enabled } }, wifirr: { ap0: { ...config.wifirr.ap0, enabled } } });
	const quiet = { objects: [ 'bquic', 'wifirr' ], 'bquic.status': { gateway: null, relay: null }, 'wifirr.status': { schedulers: [] } };
	const off = (off, answers) => ({ ...answers, 'bquic.status': { ...answers['bquic.status'], off } });
	const checked = { 'bquic.check': { ok: true, mistakes: [] }, 'wifirr.check': { mistakes: [] } };
	const named = (text) => [ ...text.matchAll(/Changes of \/etc\/config\/(\w+) are saved but not applied: the daemons do not have them yet\./g) ].map((m) => m[1]).join();

	for (const [ answers, enabled, changed, states, later ] of [
		[ off([ 'gateway', 'relay' ], quiet), '1', changes, { overview: [ 'off', 'off', 'off' ], gateway: [ 'off' ], relay: [ 'off' ], scheduler: [ 'off' ] }, true ], /* by another page */
		[ off([ 'gateway', 'relay' ], quiet), '1', changes, { overview: [ 'off', 'off', 'off' ], gateway: [ 'off' ], relay: [ 'off' ], scheduler: [ 'off' ] } ],
		[ off([], quiet), '0', changes, { overview: [ 'no answer', 'no answer', 'off' ] } ], /* whatever the changes say */
		[ quiet, '1', { network: [ [ 'set' ] ] }, { overview: [ 'no answer', 'no answer', 'no answer' ], gateway: [ 'no answer' ], relay: [ 'no answer' ], scheduler: [ 'no answer' ] } ],
		[ off([], recorded), '0', changes, { overview: [ 'running for 28s', 'connected to the gateway', 'clients take turns' ], gateway: [ 'running' ], relay: [ 'running' ], scheduler: [ 'running' ] } ]
	])
		for (const [ view, wants ] of Object.entries(states)) {
			const { page, errors } = await open(1200, { ...answers, ...checked, changes: later ? {} : changed }, set(enabled));

			await page.evaluate((changed) => { window.answers.changes = changed; }, changed);
			await show(page, view, 2);
			await afterStart(page);
			assert.deepEqual(await page.locator('.bquic-state').allTextContents(), wants, `${view} ${enabled}`);
			assert.equal(named(await page.textContent('body')), changed != changes ? '' : { overview: 'bquic,wifirr', scheduler: 'wifirr' }[view] ?? 'bquic', view);
			assert.deepEqual(errors, []);
			await page.close();
		}
});

test('overview: what was switched off is stopping as long as it answers, and what was switched on is starting for some seconds', async () => {
	const off = { bquic: { gateway: { ...config.bquic.gateway, enabled: '0' }, relay: { ...config.bquic.relay, enabled: '0' } }, wifirr: { ap0: { ...config.wifirr.ap0, enabled: '0' } } };
	const { page, errors } = await open(1200, { ...recorded, objects: [ 'bquic', 'wifirr' ], 'uci.commit': {} }, off);
	const states = () => page.$$eval('.bquic-cards:not(.bquic-graphs) .bquic-state', (all) => all.map((s) => [ s.textContent, s.className ].join('|')));

	await show(page, 'overview', 1);
	assert.deepEqual(await states(), Array(3).fill('is stopping|bquic-state '));

	await restart(page, { objects: [ 'bquic', 'wifirr' ], 'bquic.status': { gateway: null, relay: null }, 'wifirr.status': { schedulers: [] }, 'uci.commit': {} }, off);
	await show(page, 'overview', 1);
	await page.evaluate(() => { window.config.bquic.relay.enabled = '1'; });
	await page.locator('.bquic-card h3', { hasText: /^Relay/ }).locator('button').click();
	await page.waitForFunction(() => document.body.textContent.includes('is starting'));
	assert.deepEqual((await states()).map((s) => s.split('|')[0]), [ 'off', 'is starting', 'off' ]);
	await afterStart(page);
	assert.deepEqual((await states())[1], 'no answer|bquic-state bad');
	assert.deepEqual(errors, []);
	await page.close();
});

test('settings that are changed elsewhere while a form shows them: the page says so, until it shows them', async () => {
	for (const [ view, name, section ] of [ [ 'gateway', 'bquic', 'gateway' ], [ 'relay', 'bquic', 'relay' ], [ 'scheduler', 'wifirr', 'ap0' ] ]) {
		const { page, errors } = await open(1200, { ...recorded, 'bquic.check': { mistakes: [] }, 'wifirr.check': { mistakes: [] } }, structuredClone(config));
		const poll = (change) => page.evaluate(async ([ name, section, change ]) => {
			Object.assign(window.config[name][section], change);
			for (const poll of window.env.polls)
				await poll();
			return [ document.body.textContent.includes('These settings were changed elsewhere: reload this page to see them.'), document.querySelector('.bquic-state').textContent ];
		}, [ name, section, change ]);

		await show(page, view, 1);
		assert.match((await poll({})).join(), /^false,runs with these settings/, view);
		await poll({ log_level: 'debug' });
		/* as while LuCI saves, before it has drawn the form anew */
		await page.evaluate((name) => { window.answers.changes = { [name]: [ [ 'set' ] ] }; }, name);
		assert.equal((await poll({}))[0], false, view);
		await page.evaluate(() => { window.answers.changes = {}; });
		await poll({});
		assert.deepEqual(await poll({}), [ true, 'running' ], view);
		await page.evaluate((view) => {
			/* the button Reset */
			const { map } = window.env.sections[0], { handleReset } = window.env.load(`view.bquic.${view}`);

			return handleReset ? handleReset() : map.reset();
		}, view);
		assert.match((await poll({})).join(), /^false,runs with these settings/, view);
		assert.equal(await page.evaluate(([ name, section ]) => window.env.load('uci').get(name, section, 'log_level'), [ name, section ]), 'debug', `${view} shows what was there before`);
		assert.deepEqual(errors, []);
		await page.close();
	}
});

test('what is ticked in a form and could not be saved has not failed to start', async () => {
	for (const [ view, name, section ] of [ [ 'gateway', 'bquic', 'gateway' ], [ 'relay', 'bquic', 'relay' ], [ 'scheduler', 'wifirr', 'ap0' ] ]) {
		const off = structuredClone(config);

		off[name][section].enabled = '0';
		const { page, errors } = await open(1200, { 'bquic.check': { mistakes: [] }, 'wifirr.check': { mistakes: [] }, 'bquic.status': { gateway: null, relay: null }, 'wifirr.status': { schedulers: [] } }, off);

		await show(page, view, 1);
		await page.evaluate(async ([ name, section ]) => {
			/* LuCI keeps the valid fields of a form of which another one is not valid */
			window.env.load('uci').get(name, section).enabled = '1';
			for (const poll of window.env.polls)
				await poll();
		}, [ name, section ]);
		assert.deepEqual(await page.locator('.bquic-state').allTextContents(), [ 'off' ], view);
		assert.deepEqual(errors, []);
		await page.close();
	}
});

test('clients, and whether it helps, follow what somebody else switches on or off', async () => {
	const answers = { objects: [ 'bquic', 'wifirr' ], 'bquic.status': { gateway: null, relay: null }, 'wifirr.clients': { schedulers: [] }, 'wifirr.status': { schedulers: [] } };

	for (const [ view, change, before, after ] of [
		[ 'clients', 'config.wifirr.ap0.enabled = "0"', 'It is waiting for the device phy0-ap0', 'Set up' ],
		[ 'proof', 'config.bquic.relay.enabled = "0"', 'The relay does not answer', 'The relay is off.' ]
	]) {
		const { page, errors } = await open(1200, answers, structuredClone(config));

		await show(page, view, 2);
		assert.ok((await page.innerText('body')).includes(before), view);
		await page.evaluate(async (change) => {
			new Function(change)();
			for (let i = 0; i < 2; i++)
				for (const poll of window.env.polls)
					await poll();
		}, change);
		const text = await page.innerText('body');
		assert.ok(text.includes(after) && !text.includes(before), `${view}: ${text}`);
		assert.deepEqual(errors, []);
		await page.close();
	}
});

test('before the first answer, no page says that there is nothing', async () => {
	for (const view of [ 'proof', 'gateway', 'relay', 'clients', 'log' ]) {
		const { page, errors } = await open(1200, { ...recorded, away: true }, config);

		await show(page, view, 1);
		assert.doesNotMatch(await page.innerText('body'), /Nothing yet|No clients yet|No answer|no token/, view);
		assert.deepEqual(errors, []);
		await page.close();
	}
});

test('a relay’s flows of UDP, a gateway’s relays and servers, and a gateway without a token', async () => {
	const { gateway, relay } = recorded['bquic.status'], rows = (page) => page.$$eval('.cbi-section table.bquic-table tbody tr', (all) => all.map((r) => [ ...r.cells ].map((c) => c.textContent.replaceAll('\u00a0', ' '))));
	const flows = 'UDP flows: 2 now, 31 since the start; datagrams lost: 4.';

	for (const [ view, status, says, silent, wants ] of [
		[ 'overview', { gateway, relay }, [ flows, 'Connections: 1 by QUIC, 0 by TCP; 1 by QUIC since the start.', 'Servers of sites that did not answer the last request: http://192.0.2.2:8080.' ], [ 'no token' ] ],
		[ 'overview', { gateway: { ...gateway, connections_tcp: 3, tunnels: undefined, origins: [] }, relay: { ...relay, udp: { now: 0, total: 0, lost: 0 } } }, [ 'Serves no relay: there is no token.', '3 by TCP' ], [ 'UDP:', 'did not answer' ] ],
		[ 'relay', { relay }, [ flows ], [] ],
		[ 'gateway', { gateway }, [], [ 'no token.' ], [ [ 'relays without a name', '0', '0', '0', '0 B', '0 B' ], [ 'tower', '1', '2', '3', '150 B', '38.2 MB' ],
			[ 'http://192.0.2.1', 'answered' ], [ 'http://192.0.2.2:8080', 'connection refused' ] ] ],
		[ 'gateway', { gateway: { ...gateway, tunnels: undefined, origins: undefined } }, [ 'Serves no relay: there is no token.' ], [ 'Last request' ] ]
	]) {
		const { page, errors } = await open(1200, { ...recorded, 'bquic.check': { mistakes: [] }, 'bquic.status': status }, config);

		await show(page, view, 2);
		const text = await page.innerText('body');
		for (const part of says)
			assert.ok(text.includes(part), `${view}: ${part} in ${text}`);
		for (const part of silent)
			assert.ok(!text.includes(part), `${view}: ${part}`);
		if (wants)
			assert.deepEqual(await rows(page), wants);
		assert.deepEqual(errors, []);
		await page.close();
	}
});

test('the log: that it cannot be read, and what was read before', async () => {
	const line = 'Tue Nov 24 20:34:47 2026 daemon.info bquic[42]: gateway ready', none = 'Failed to find log object: Not found\n';
	const { page, errors } = await open(1200, { objects: [ 'file' ], 'file.exec': { code: 0, stdout: `${line}\n` } }, config);
	const poll = (exec) => page.evaluate(async (exec) => {
		window.answers['file.exec'] = exec;
		for (const poll of window.env.polls)
			await poll();
		return [ document.querySelector('.alert-message')?.textContent ?? '', document.querySelector('tbody').textContent ];
	}, exec);

	await show(page, 'log', 1);
	assert.deepEqual(await poll({ code: 4, stdout: '', stderr: none + none }), [ 'The system log cannot be read. Failed to find log object: Not found', 'Tue Nov 24 20:34:47 2026infobquicgateway ready' ]);
	assert.match((await poll(undefined))[0], /^The system log cannot be read\. ?$/);
	assert.equal((await poll({ code: 0, stdout: '' }))[0], '');
	assert.deepEqual(errors, []);
	await page.close();
});

test('connections are faster and page loads slower: the answer is not certain, also after a week', async () => {
	const was = recorded['bquic.status'], line = (change, low, high) => ({ carried: 900, direct: 90, complete: { change, low, high } });

	for (const days of [ 2, 8 ]) {
		const proof = { ...was.relay.proof, verdict: 'unsure', days, overall: line(-0.2, -0.3, -0.1), pages: line(0.2, 0.1, 0.3) };
		const { page, errors } = await open(1200, { ...recorded, 'bquic.status': { ...was, relay: { ...was.relay, proof } } }, config);

		await show(page, 'proof', 2);
		assert.match(await page.textContent('body'), /Connections say one thing and page loads the other/);
		assert.deepEqual(errors, []);
		await page.close();
	}
});

test('overview: a button says what it switches, to those who hear only its name', async () => {
	const { page, errors } = await open(1200, recorded, config);

	await show(page, 'overview', 1);
	assert.deepEqual(await page.$$eval('.bquic-card h3 button', (all) => all.map((b) => b.ariaLabel)), [ 'Switch off: Gateway', 'Switch off: Relay', 'Switch off: Scheduler on phy0-ap0' ]);
	assert.deepEqual(errors, []);
	await page.close();
});

test('a scheduler whose device is gone is not said to watch it', async () => {
	for (const view of [ 'overview', 'scheduler' ])
		for (const [ present, wants ] of [ [ false, 'waits for its device, which does not exist now|bquic-state ' ], [ true, view == 'overview' ? 'clients take turns|bquic-state on' : 'runs with these settings|bquic-state on' ] ]) {
			const { page, errors } = await open(1200, { 'wifirr.check': { mistakes: [] }, 'wifirr.status': { schedulers: [ { ...recorded['wifirr.status'].schedulers[0], present } ] } }, config);

			await show(page, view, 2);
			assert.equal(await page.locator('.bquic-state').last().evaluate((e) => `${e.textContent}|${e.className}`), wants, view);
			assert.deepEqual(errors, []);
			await page.close();
		}
});

test('clients: a neighbour is no client that somebody has exempted', async () => {
	const [ first, ...others ] = recorded['wifirr.clients'].schedulers[0].clients, clients = [ { ...first, ignored: true, neighbour: true }, { ...others[0], ignored: true, neighbour: false } ];
	const { page, errors } = await open(1200, { 'wifirr.clients': { schedulers: [ { device: 'phy0-ap0', clients } ] } }, config);

	await show(page, 'clients', 2);
	for (const [ client, state ] of [ [ first, 'neighbour (mesh or WDS)' ], [ others[0], 'ignored' ] ])
		assert.equal(await page.locator('tr', { hasText: client.client }).locator('td').nth(4).textContent(), state);
	assert.deepEqual(errors, []);
	await page.close();
});

test('a daemon that ends, to begin again with other settings, does not run with these', async () => {
	const { gateway, relay } = recorded['bquic.status'], ending = { gateway: { ...gateway, stopping: true }, relay: { ...relay, taking: false, stopping: true } };

	for (const [ view, wants ] of [ [ 'overview', [ 'is stopping', 'is stopping', 'clients take turns' ] ], [ 'gateway', [ 'is stopping' ] ], [ 'relay', [ 'is stopping' ] ] ]) {
		const { page, errors } = await open(1200, { ...recorded, 'bquic.check': { mistakes: [] }, 'bquic.status': ending }, config);

		await show(page, view, 2);
		assert.deepEqual(await page.locator('.bquic-state').allTextContents(), wants, view);
		assert.deepEqual(errors, []);
		await page.close();
	}
});

test('what has failed is said in a sentence, without the lines for developers that LuCI adds', async () => {
	const { page, errors } = await open(1200, { ...recorded, 'bquic.check': { mistakes: [] } }, config);

	await show(page, 'overview', 1);
	for (const [ card, name, call ] of [ [ /^Relay/, 'Switch off', 'uci/commit' ], [ /^Scheduler/, 'Pause all schedulers', 'wifirr/pause' ] ]) {
		await page.locator('.bquic-card', { has: page.locator('h3', { hasText: card }) }).locator('button', { hasText: name }).click();
		await page.waitForFunction((call) => window.env.did.some((d) => d[0] == 'notice' && d[1].includes(call)), call);
		assert.deepEqual((await page.evaluate(() => window.env.did)).findLast((d) => d[0] == 'notice'), [ 'notice', `RPC call to ${call} failed with ubus code 4: Resource not found` ]);
	}
	await restart(page, { ...recorded, 'bquic.check': { mistakes: [] } }, config);
	await show(page, 'gateway', 1);
	await page.locator('[data-name="_test"] button').click();
	assert.equal(await page.locator('[data-name="_test"] p').textContent(), 'RPC call to bquic/fetch failed with ubus code 4: Resource not found');
	assert.deepEqual(errors, []);
	await page.close();
});

test('a relay that slows connections down says so on the overview and beside its settings, and where to read more', async () => {
	const { relay } = recorded['bquic.status'];

	for (const view of [ 'overview', 'relay' ])
		for (const [ verdict, says, alert ] of [
			[ 'slower', 'Carried connections are slower than direct ones here.', true ],
			[ 'silent', 'More of the carried connections than of the direct ones get no answer.', true ],
			[ 'faster', 'Carried connections are faster than direct ones here.', false ],
			[ 'unsure' ]
		]) {
			const { page, errors } = await open(1200, { 'bquic.check': { mistakes: [] }, 'bquic.status': { relay: { ...relay, proof: { ...relay.proof, verdict } } } }, config);

			await show(page, view, 1);
			assert.deepEqual(await page.$$eval('p:has(a[href$="/proof"])', (all) => all.map((p) => p.previousElementSibling).map((p) => [ p.textContent, p.className == 'alert-message warning' ])), says ? [ [ says, alert ] ] : [], view);
			assert.deepEqual(errors, []);
			await page.close();
		}
});

test('overview: why a gateway that answers is of no use', async () => {
	const was = recorded['bquic.status'];

	for (const [ gateways, alerts ] of [
		[ [ { address: 'g:1', state: 'up', error: 'it has no place for more connections' }, { address: 'g:2', state: 'away', error: 'no answer' } ], [ 'g:1: it has no place for more connections' ] ],
		[ was.relay.gateways, [] ]
	]) {
		const { page, errors } = await open(1200, { 'bquic.check': { mistakes: [] }, 'bquic.status': { relay: { ...was.relay, gateways } } }, config);

		await show(page, 'overview', 1);
		assert.deepEqual(await page.$$eval('p.alert-message', (all) => all.map((p) => p.textContent)), alerts);
		assert.deepEqual(errors, []);
		await page.close();
	}
});

test('graph: the times at which it begins and ends', async () => {
	const { page, errors } = await open(400, {}, {});

	await (await page.context().newCDPSession(page)).send('Emulation.setTimezoneOverride', { timezoneId: 'Europe/Madrid' });
	await page.clock.setFixedTime('2026-07-15T12:00:00Z');
	assert.deepEqual(await page.evaluate(() => {
		const g = window.env.load('bquic.graph').create('t', 'B', [ 'a' ], 1);

		return [ false, true ].map((past) => {
			g.show(past);
			return [ ...g.element.querySelectorAll('.times span') ].map((time) => time.textContent.replace(/\s/g, ' '));
		});
	}), [ [ '01:55 PM', '01:57 PM', '02:00 PM' ], [ '02:00 AM', '08:00 AM', '02:00 PM' ] ]);
	assert.deepEqual(errors, []);
	await page.close();
});
