// SPDX-License-Identifier: Apache-2.0
'use strict';
// The app's pages in Chromium, with the parts of LuCI that luci.js provides.

const fs = require('node:fs');
const path = require('node:path');
const { after, before } = require('node:test');
const { chromium } = require('playwright-core');

const resources = path.resolve(__dirname, '../htdocs/luci-static/resources');
const recorded = JSON.parse(fs.readFileSync(path.join(__dirname, 'recorded.json'), 'utf8'));
const patience = 180000; // ms until something counts as never to happen, on the slowest and busiest machine
let browser;

before(async () => {
	browser = await chromium.launch({ timeout: patience, executablePath: process.env.CHROMIUM, args: [ '--no-sandbox', '--disable-gpu', '--force-color-profile=srgb' ] });
});
after(() => browser?.close());

/* Nothing comes from a network: every request is answered from the repository, or fails. */
async function open(width, answers, config) {
	const page = await browser.newPage({ viewport: { width, height: 800 } });
	const errors = [];

	page.setDefaultTimeout(patience);
	page.on('pageerror', (e) => errors.push(e.message));
	page.on('dialog', (d) => { errors.push(`dialog ${d.message()}`); d.dismiss(); });
	await page.route('**/*', (route) => {
		const at = new URL(route.request().url()).pathname;
		const file = at == '/' ? path.join(__dirname, 'page.html') : path.join(resources, at.replace('/luci-static/resources/', ''));
		return fs.existsSync(file) ? route.fulfill({ path: file }) : (errors.push(`fetched ${at}`), route.abort());
	});
	await page.goto('http://router.invalid/');
	await page.addScriptTag({ path: path.join(__dirname, 'luci.js') });
	await restart(page, answers, config);

	return { page, errors };
}

/* An empty page, as if it had just been opened, in a fraction of the time. */
async function restart(page, answers, config) {
	await page.evaluate(([ sources, answers, config ]) => {
		window.executed = false;
		Object.assign(window, { answers, sources, config });
		window.env = window.luci((name) => sources[name], answers, config);
		document.body.replaceChildren();
	}, [ sources(), answers, config ]);
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

const config = {
	bquic: { gateway: { '.type': 'gateway', enabled: '1' }, relay: { '.type': 'relay', enabled: '1', gateway: 'g', token: 't' } },
	wifirr: { ap0: { '.type': 'scheduler', '.name': 'ap0', device: 'phy0-ap0', enabled: '1' } }
};

module.exports = { open, restart, show, recorded, config };
