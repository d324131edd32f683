// SPDX-License-Identifier: Apache-2.0
'use strict';
// Accessibility of every page: axe-core finds nothing serious, the keyboard alone
// is enough, and a phone's screen is wide enough.

const assert = require('node:assert/strict');
const test = require('node:test');

const { open, show, recorded, config } = require('./browser.js');
const po = require('./po.js');

const views = [ 'overview', 'proof', 'gateway', 'relay', 'scheduler', 'clients', 'log' ];

/* Fills each page with all it can show: a section of each type, mistakes, history, log lines. */
const full = {
	bquic: {
		...config.bquic,
		a: { '.type': 'site', '.name': 'a' }, b: { '.type': 'peer', '.name': 'b' }, c: { '.type': 'upstream', '.name': 'c' }, d: { '.type': 'profile', '.name': 'd' }
	},
	wifirr: config.wifirr
};
const hours = (...values) => values;
const answers = {
	...recorded,
	'bquic.history': { gateway: { down_bps: hours(1e6, 2e6), up_bps: hours(1e5, 2e5), packets_per_ack: hours(3, 4), smoothed_rtt_ms: hours(9, 8), min_rtt_ms: hours(2, 2) } },
	'wifirr.history': { schedulers: [ { device: 'phy0-ap0', clients_with_demand: hours(1, 2), clients_served: hours(1, 1), busy_permille: hours(300, 400), wasted_estimate_permille: hours(1, 2) } ] },
	'bquic.check': { ok: false, mistakes: [ { line: 3, section: 'gateway', option: 'listen', text: 'must be :PORT' } ] },
	'wifirr.check': { mistakes: [ 'section ap0: rate: must be given' ] },
	'bquic.fetch': { error: 'no answer' },
	'file.exec': { code: 0, stdout: 'Tue Nov 24 20:34:47 2026 daemon.info bquic[42]: gateway ready\nTue Nov 24 20:34:48 2026 daemon.err wifirrd[7]: no such device\n' },
	'uci.commit': {},
	'wifirr.pause': {}
};

/* Barriers on the page. axe accepts a placeholder as a label, but it vanishes with the first key. */
async function faults(page) {
	if (!await page.evaluate(() => !!window.axe))
		await page.addScriptTag({ path: require.resolve('axe-core') });
	const { violations } = await page.evaluate(() => window.axe.run({ resultTypes: [ 'violations' ] }));
	const unnamed = await page.evaluate(() => [ ...document.querySelectorAll('input, select, textarea') ].filter((e) => !e.labels.length && !e.ariaLabel).map((e) => e.outerHTML));

	return [
		...violations.filter((v) => [ 'serious', 'critical' ].includes(v.impact) || v.id == 'heading-order').flatMap((v) => v.nodes.map((n) => `${v.id}: ${n.html}`)),
		...unnamed.map((html) => `no label: ${html}`)
	];
}

/* At this width, nothing needs horizontal scrolling. */
async function fits(page, width) {
	await page.setViewportSize({ width, height: 800 });
	const beyond = await page.evaluate(() => [ ...document.querySelectorAll('body *') ]
		.filter((e) => e.getBoundingClientRect().right > window.innerWidth + 1 && !e.closest('svg')).map((e) => e.outerHTML.slice(0, 200)));
	assert.deepEqual(beyond, [], `${width} wide`);
	assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= window.innerWidth), `wider than ${width}`);
}

for (const view of views)
	test(`${view}: nothing serious for axe and nothing beyond the edge, light and dark, on phones and wide screens`, async () => {
		const { page, errors } = await open(1200, answers, full);

		await show(page, view, 2);
		/* 320: a small phone, or 1280 at four times the size (WCAG 2.2, 1.4.10); 769: the narrowest tables */
		for (const [ width, ...themes ] of [ [ 320 ], [ 390, '', 'dark' ], [ 769, '' ], [ 1200, '', 'dark' ] ]) {
			await fits(page, width);
			for (const theme of themes) {
				await page.evaluate((theme) => { document.body.className = theme; }, theme);
				assert.deepEqual(await faults(page), [], `${width} wide ${theme}`);
			}
		}
		assert.deepEqual(errors, []);
		await page.close();
	});

for (const language of po.languages)
	test(`${language}: longer words fit, too`, async () => {
		const words = Object.fromEntries(po.catalog(`po/${language}/bquic.po`));

		for (const view of views) {
			const { page, errors } = await open(320, answers, full);

			await page.evaluate((words) => { window.env = window.luci((name) => window.sources[name], window.answers, window.config, (text) => words[text]); }, words);
			await show(page, view, 2);
			for (const width of [ 320, 769 ])
				await fits(page, width);
			assert.deepEqual(errors, []);
			await page.close();
		}
	});

test('what has a state has one name in both: a screen reader says “Switch off, switch, on” otherwise', async () => {
	const names = async (enabled) => {
		const { page, errors } = await open(1200, recorded, { bquic: { relay: { ...config.bquic.relay, enabled } }, wifirr: { ap0: { ...config.wifirr.ap0, enabled } } });

		await show(page, 'overview', 1);
		const found = await page.$$eval('[role=switch], [aria-pressed]', (all) => all.map((e) => e.ariaLabel ?? e.textContent));
		assert.deepEqual(errors, []);
		await page.close();
		return found;
	};
	const on = await names('1');

	assert.ok(on.length);
	assert.deepEqual(await names('0'), on);
});

test('a label that is gone is noticed', async () => {
	for (const [ view, file, label ] of [
		[ 'log', 'view/bquic/log.js', "'aria-label': _('Search'), 'placeholder': _('Search')," ],
		[ 'gateway', 'view/bquic/gateway.js', "'aria-label': _('URL')," ],
		[ 'scheduler', 'view/bquic/scheduler.js', "_('Airtime weights')" ]
	]) {
		const { page } = await open(1200, answers, full);

		assert.ok(await page.evaluate(([ file, label ]) => {
			const had = window.sources[file];
			window.sources[file] = had.replace(label, label.startsWith('_') ? "''" : '');
			return window.sources[file] != had;
		}, [ file, label ]), `${file} has no ${label}`);
		await show(page, view, 1);
		const found = await faults(page);
		assert.ok(found.length > 0, `${view}: ${label} was not missed`);
		for (const fault of found)
			assert.match(fault, /^(label|select-name|no label): /);
		await page.close();
	}
});

/* Numbers all controls of a page, and returns them. */
const number = () => [ ...document.querySelectorAll('a[href], button, input, select, textarea, summary, [tabindex]') ]
	.filter((e) => !e.disabled && e.tabIndex >= 0 && e.getClientRects().length).map((e, i) => { e.dataset.control = i; return e.outerHTML.slice(0, 200); });

for (const view of views)
	test(`${view}: by keyboard alone`, async () => {
		const { page, errors } = await open(1200, answers, full);

		/* an element that listens to the mouse must be reachable by keyboard */
		await page.evaluate(() => {
			const listen = Node.prototype.addEventListener;
			window.mouse = [];
			window.pressed = [];
			Node.prototype.addEventListener = function(type, ...rest) {
				if (/^(click|dblclick|mouse|pointer|touch)/.test(type))
					window.mouse.push(this);
				return listen.call(this, type, ...rest);
			};
		});
		await show(page, view, 2);
		assert.deepEqual(await page.evaluate(() => window.mouse.filter((e) => !e.matches('a[href], button, input, select, textarea')).map((e) => e.outerHTML)), []);

		/* reached in visual order, with visible focus */
		const controls = await page.evaluate(number);
		assert.ok(controls.length > 0 || view == 'clients', 'nothing to use');
		for (const [ i, html ] of controls.entries()) {
			await page.keyboard.press('Tab');
			const [ at, seen ] = await page.evaluate(() => [ document.activeElement.dataset.control, document.activeElement.matches(':focus-visible') && getComputedStyle(document.activeElement).outlineStyle != 'none' ]);
			assert.equal(at, String(i), `Tab ${i + 1} goes to ${controls[at]}, not to ${html}`);
			assert.ok(seen, `${html} does not show that it has the focus`);
		}

		/* and operable: buttons and boxes by the space bar, lists by arrows, fields by typing */
		for (const [ i, html ] of controls.entries()) {
			const control = page.locator(`[data-control="${i}"]`);

			if (!await control.count())
				continue; /* an earlier control has changed the page */
			await control.focus();
			const kind = await control.evaluate((e) => {
				e.addEventListener('click', (ev) => { window.pressed.push(ev.detail); ev.preventDefault(); }, { once: true, capture: true });
				return e.type || e.localName; /* a link's type is '' */
			});
			if (kind == 'select-one') {
				const was = await control.inputValue(), last = await control.evaluate((e) => e.selectedIndex == e.options.length - 1);
				await page.keyboard.press(last ? 'ArrowUp' : 'ArrowDown');
				assert.ok(await control.evaluate((e) => e.options.length < 2) || await control.inputValue() != was, `${html} stays ${was}`);
			} else if ([ 'text', 'search', 'password' ].includes(kind)) {
				await page.keyboard.type('1');
				assert.match(await control.inputValue(), /1/, html);
			} else if (kind != 'div') {
				await page.keyboard.press(kind == 'a' ? 'Enter' : 'Space');
				/* 0: no mouse */
				assert.deepEqual(await page.evaluate(() => window.pressed.splice(0)), [ 0 ], html);
			}
		}
		assert.deepEqual(errors, []);
		await page.close();
	});
