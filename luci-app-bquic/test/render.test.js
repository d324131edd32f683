// SPDX-License-Identifier: Apache-2.0
'use strict';
// Pages in a browser: from recorded status, from hostile and from missing status.
// UPDATE=1 writes the expected pictures anew.

const assert = require('node:assert/strict');
const fs = require('node:fs');
const path = require('node:path');
const { after, before, test } = require('node:test');
const { chromium } = require('playwright-core');

const resources = path.resolve(__dirname, '../htdocs/luci-static/resources');
const recorded = JSON.parse(fs.readFileSync(path.join(__dirname, 'recorded.json'), 'utf8'));
let browser;

before(async () => {
	browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: [ '--no-sandbox', '--disable-gpu', '--force-color-profile=srgb' ] });
});
after(() => browser?.close());

/* Nothing is fetched from a network: every request is answered from the repository, or fails. */
async function open(width, answers, config) {
	const page = await browser.newPage({ viewport: { width, height: 800 } });
	const errors = [];

	page.on('pageerror', (e) => errors.push(e.message));
	page.on('dialog', (d) => { errors.push(`dialog ${d.message()}`); d.dismiss(); });
	await page.route('**/*', (route) => {
		const at = new URL(route.request().url()).pathname;
		const file = at == '/' ? path.join(__dirname, 'page.html') : path.join(resources, at.replace('/luci-static/resources/', ''));
		return fs.existsSync(file) ? route.fulfill({ path: file }) : (errors.push(`fetched ${at}`), route.abort());
	});
	await page.goto('http://router.invalid/');
	await page.addScriptTag({ path: path.join(__dirname, 'luci.js') });
	await page.evaluate(([ sources, answers, config ]) => {
		window.executed = false;
		window.answers = answers;
		window.env = window.luci((name) => sources[name], answers, config);
	}, [ sources(), answers, config ]);

	return { page, errors };
}

function sources() {
	return Object.fromEntries(fs.readdirSync(resources, { recursive: true }).filter((f) => f.endsWith('.js'))
		.map((f) => [ f, fs.readFileSync(path.join(resources, f), 'utf8') ]));
}

async function show(page, view, polls) {
	await page.evaluate(async ([ view, polls ]) => {
		const v = window.env.load(`view.bquic.${view}`);
		document.body.append(await v.render(await Promise.resolve(v.load?.()) ?? []));
		for (let i = 0; i < polls; i++)
			for (const poll of window.env.polls)
				await poll();
		await new Promise((r) => setTimeout(r, 50));
	}, [ view, polls ]);
}

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
	/* of what is drawn, not of the background */
	assert.ok(differ <= painted * 0.05, `${name}: ${differ} of ${painted} drawn pixels differ`);
}

const config = {
	bquic: { gateway: { '.type': 'gateway', enabled: '1' }, relay: { '.type': 'relay', enabled: '1', gateway: 'g', token: 't' } },
	wifirr: { ap0: { '.type': 'scheduler', '.name': 'ap0', device: 'phy0-ap0', enabled: '1' } }
};

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
	const { page, errors } = await open(700, {}, {});
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

test('graph: what no graph can show is a gap; numbers stay readable', async () => {
	const { page, errors } = await open(400, {}, {});
	const { points, texts } = await page.evaluate(() => {
		const graph = window.env.load('bquic.graph');
		const g = graph.create('t', 'B', [ 'a' ], 1);
		for (const v of [ undefined, null, NaN, Infinity, -1, '5', {}, [], true, 3 ])
			g.push(v);
		return {
			points: g.element.querySelector('polyline').getAttribute('points'),
			texts: [ 0, 999, 1000, 12345678, Number.MAX_SAFE_INTEGER, 1e300, null ].map((v) => graph.format(v, 'B'))
		};
	});

	assert.equal(points.split(' ').length, 1, points);
	assert.doesNotMatch(points, /NaN|Infinity/);
	assert.deepEqual(texts.slice(0, 4).map((t) => t.replace('\u00a0', ' ')), [ '0 B', '999 B', '1.0 kB', '12.3 MB' ]);
	for (const text of texts)
		assert.ok(text.length < 14, text);
	assert.deepEqual(errors, []);
});

test('overview and clients from recorded status', async () => {
	for (const width of [ 390, 1200 ]) {
		const { page, errors } = await open(width, recorded, config);

		await show(page, 'overview', 3);
		const text = await page.textContent('body');
		for (const part of [ 'connected to the gateway', 'The processor carries 8.1 Mbit/s, the path 30: TCP goes direct, which is faster.', 'clients take turns', recorded['wifirr.status'].schedulers[0].why, 'Switch off', 'Pause all' ])
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

/* Every string of an answer becomes this. */
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

/* Nothing is executed; where text is shown, it is shown as it is. */
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

	/* so that the answers meet their sections */
	for (const s of hostile['wifirr.status'].schedulers)
		s.device = markup;
	hostile['bquic.relay'] = null;
	hostile['bquic.check'] = { ok: false, mistakes: [ { line: 3, section: markup, option: markup, text: markup } ] };
	const bad = structuredClone(config);
	bad.wifirr.ap0.device = markup;

	for (const view of [ 'overview', 'clients', 'relay', 'proof' ]) {
		const { page, errors } = await open(1200, { ...hostile, ...names }, bad);
		await show(page, view, 3);
		await harmless(page, errors, true);
		await page.close();
	}
});

test('status with fields missing, of other types, and with huge numbers', async () => {
	const wrecks = [ (v) => undefined, (v) => null, (v) => 1e308, (v) => -1, (v) => 'x', (v) => [], (v) => ({}), (v) => Number.MAX_SAFE_INTEGER ];

	/* each leaf in turn is wrecked, and each object */
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
	for (const answer of answers)
		for (const view of [ 'overview', 'clients', 'relay', 'proof' ]) {
			const { page, errors } = await open(1200, { objects: [ 'bquic', 'wifirr' ], ...answer }, config);
			await show(page, view, 2);
			assert.doesNotMatch(await page.textContent('body'), /undefined|\[object|NaN/, JSON.stringify(answer).slice(0, 300));
			assert.deepEqual(errors, [], JSON.stringify(answer).slice(0, 300));
			await page.close();
		}
});

test('what is not installed, not set up or does not answer, and the way out', async () => {
	for (const [ answers, uci, wants, view ] of [
		[ { 'wifirr.clients': { schedulers: [] } }, config, [ 'No scheduler runs.', 'It waits for the device phy0-ap0', 'Open the system log' ], 'clients' ],
		[ { 'wifirr.clients': { schedulers: [] } }, {}, [ 'No scheduler runs.', 'Set up' ], 'clients' ],
		[ {}, {}, [ 'The package bquic-gateway is not installed.', 'The package wifirr-sched is not installed.', 'Install it' ] ],
		[ { objects: [ 'bquic', 'wifirr' ] }, config, [ 'no answer', 'Open the system log', 'It waits for the device phy0-ap0' ] ],
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

test('a switch applies its own change, and none that waits elsewhere', async () => {
	const press = async (changes) => {
		const { page, errors } = await open(1200, { ...recorded, changes, 'uci.commit': {} }, config);
		await show(page, 'overview', 2);
		await page.locator('.bquic-card h4', { hasText: /^Relay/ }).locator('button').click();
		await page.waitForFunction(() => window.env.did.length > 0);
		await page.waitForTimeout(100);
		const did = await page.evaluate(() => window.env.did);
		assert.deepEqual(errors, []);
		await page.close();
		return did;
	};
	const wants = [ [ 'set', 'bquic', 'relay', 'enabled', '0' ], [ 'save' ], [ 'uci.commit', 'bquic' ], [ 'count' ] ];

	assert.deepEqual(await press({}), wants);
	/* a hostname that waits for Save & Apply goes on waiting */
	assert.deepEqual(await press({ system: [ [ 'set', 'cfg01e48a', 'hostname', 'x' ] ] }), wants);
	/* of the same file, nothing can be left out: that is told */
	const [ [ what, text ], ...more ] = await press({ bquic: [ [ 'set', 'gateway', 'listen', ':9' ] ] });
	assert.deepEqual([ what, more ], [ 'notice', [] ]);
	assert.match(text, /apply or revert them first/);
});

test('who may only read cannot switch', async () => {
	const { page, errors } = await open(1200, { ...recorded, readonly: true }, config);

	await show(page, 'overview', 2);
	assert.ok(await page.locator('button').count() >= 3);
	assert.equal(await page.locator('button:not([disabled])').count(), 0);
	assert.deepEqual(errors, []);
});

/* Draws the overview from a gateway at each [ uptime, bytes sent ] (null: no answer) and returns what its traffic graph says. */
async function traffic(samples) {
	const { page, errors } = await open(1200, { ...recorded, 'bquic.status': undefined }, config);

	await show(page, 'overview', 0);
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
	/* a burst that two polls 20 ms apart see; what it was counts in the next rate */
	assert.deepEqual(await traffic([ [ 100, 1e9 ], [ 102, 1.004e9 ], [ 102.02, 1.005e9 ], [ 104, 1.009e9 ] ]), { top: '≤ 20.0 Mbit/s', now: 'to clients: 20.0 Mbit/s' });
	assert.deepEqual(await traffic([ [ 100, 1e9 ], [ 102, 1.004e9 ], [ 1, 1e9 ], [ 3, 1.005e9 ] ]), { top: '≤ 20.0 Mbit/s', now: 'to clients: 20.0 Mbit/s' });
});

test('a daemon that does not answer for once is a gap in the graph, not a peak', async () => {
	assert.deepEqual(await traffic([ [ 100, 1e9 ], null, [ 102, 2e9 ], [ 104, 2.005e9 ] ]), { top: '≤ 20.0 Mbit/s', now: 'to clients: 20.0 Mbit/s' });
});

test('whether it helps: words, intervals, what the scheduler says, and an export without addresses', async () => {
	const why = 'larger windows: 12 of 14 clients aggregate';
	const schedulers = [ { device: 'phy0-ap0', why: 'two clients with demand', contention: { why } }, { device: 'phy1-ap0', contention: null } ];

	for (const width of [ 390, 1200 ]) {
		const { page, errors } = await open(width, { ...recorded, 'wifirr.status': { schedulers } }, config);
		await show(page, 'proof', 2);
		const text = await page.textContent('body');
		for (const part of [ 'Carried connections are 18 % faster (95 %: 12 to 23): 12480 against 655, last 7 days.', 'The relay helps here: leave it on.',
			'Without an answer: 0.1 % of the carried connections, 1.1 % of the direct ones.', '0.1 to 1 MB', '21 % faster (95 %: 14 to 29)',
			'30 % slower (95 %: 10 to 50)', 'neither surely faster nor slower (95 %: 3 % faster to 7 % slower)', 'too few to say anything', '10.9.0.0/24', why, 'two clients with demand', 'Scheduler on phy0-ap0' ])
			assert.ok(text.includes(part), `${part} in ${text}`);
		assert.ok(!text.includes('phy1-ap0'), 'a scheduler that says nothing is shown');
		assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= window.innerWidth), `wider than ${width}`);

		/* faster is left of the line, slower right of it, unsure across */
		const bars = await page.$$eval('svg.bquic-interval', (all) => all.map((svg) => [ svg.getAttribute('aria-label'), ...[ ...svg.querySelectorAll('rect') ].map((r) => [ +r.getAttribute('x') < 100, +r.getAttribute('x') + +r.getAttribute('width') > 100, r.getAttribute('class') ]) ]));
		assert.deepEqual(bars.slice(0, 5), [
			[ 'All sizes: 18 % faster (95 %: 12 to 23)', [ true, false, 'good' ] ],
			[ 'less than 0.1 MB: neither surely faster nor slower (95 %: 3 % faster to 7 % slower)', [ true, true, 'open' ] ],
			[ '0.1 to 1 MB: 21 % faster (95 %: 14 to 29)', [ true, false, 'good' ] ],
			[ '1 to 10 MB: 30 % slower (95 %: 10 to 50)', [ false, true, 'bad' ] ],
			[ 'more than 10 MB: too few to say anything' ]
		]);

		const [ download ] = await Promise.all([ page.waitForEvent('download'), page.locator('button', { hasText: 'Export' }).click() ]);
		const exported = JSON.parse(fs.readFileSync(await download.path(), 'utf8'));
		assert.deepEqual([ exported.verdict, exported.overall.carried, exported.sizes.length, exported.clients.length ], [ 'faster', 12480, 4, 1 ]);
		assert.doesNotMatch(JSON.stringify(exported), /10\.9\.0/);
		assert.deepEqual(errors, []);
		await page.close();
	}
});

test('whether it helps: no scheduler, no relay, nothing compared', async () => {
	const without = (proof) => ({ 'bquic.status': { gateway: null, relay: { ...recorded['bquic.status'].relay, proof } } });

	for (const [ answers, wants ] of [
		[ {}, 'The relay does not answer' ],
		[ without(undefined), 'older than this page' ],
		[ without({ verdict: 'off', days: 0, overall: { carried: 0, direct: 0 }, sizes: [] }), 'Nothing is compared now' ],
		[ without({ verdict: 'spared', days: 1, overall: { carried: 9, direct: 9, complete: { change: 0.5, low: 0.2, high: 0.9 } } }), '50 % slower (95 %: 20 to 90): 9 against 9' ]
	]) {
		const { page, errors } = await open(1200, answers, config);
		await show(page, 'proof', 2);
		const text = await page.textContent('body');
		assert.ok(text.includes(wants), `${wants} in ${text}`);
		assert.ok(!text.includes('own comparison'), 'a scheduler that is not there is shown');
		assert.equal(await page.locator('button[disabled]', { hasText: 'Export' }).count(), answers['bquic.status']?.relay.proof ? 0 : 1);
		assert.deepEqual(errors, []);
		await page.close();
	}
});

test('a pin is copied as it is', async () => {
	const { page, errors } = await open(600, {}, {});
	const pasted = await page.evaluate(async () => {
		const copied = new Promise((r) => document.addEventListener('copy', () => r(document.activeElement.value), { once: true }));
		const button = window.env.load('bquic.common').copyButton('sha256/<b>=');
		document.body.append(button);
		button.click();
		return [ await copied, button.textContent ];
	});

	assert.deepEqual(pasted, [ 'sha256/<b>=', 'Copied.' ]);
	assert.deepEqual(errors, []);
});
