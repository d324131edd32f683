// SPDX-License-Identifier: Apache-2.0
'use strict';
// Takes the pictures of docs/images anew, from a router with the three packages
// and traffic on it:
//
//	LUCI_PASSWORD=... node luci-app-bquic/test/pictures.js http://192.168.1.1/cgi-bin/luci [PAGE]...
//
// PAGE: overview, gateway and so on; default: all in docs/images.
// "scripts/install-deps" and "make test-luci" install the requirements. The graphs
// show the five minutes during which it watches the overview.

const { execFileSync } = require('node:child_process');
const fs = require('node:fs');
const path = require('node:path');
const { chromium } = require(require.resolve('playwright-core', { paths: [ path.resolve(__dirname, '../../.cache/luci') ] }));

const images = path.resolve(__dirname, '../../docs/images');
const SIZE = { width: 1200, height: 800 };
const WATCH_MS = 300000;
const TIMEOUT_MS = 120000; /* for a small, busy router */

async function login(page, url) {
	await page.goto(`${url}/admin/services/bquic/overview`);

	const password = page.locator('input[type=password]');
	if (await password.count()) {
		await password.fill(process.env.LUCI_PASSWORD ?? '');
		await password.press('Enter');
		await page.waitForSelector('#view h2');
	}
}

async function take(page, url, name) {
	await page.goto(`${url}/admin/services/bquic/${name}`);
	await page.waitForSelector('#view h2');
	/* until polls of every second or two are answered */
	await page.waitForTimeout(5000);
	if (name == 'overview') {
		await page.getByRole('button', { name: '5 minutes' }).click();
		await page.waitForTimeout(WATCH_MS);
	}
	if (name == 'clients')
		await page.waitForTimeout(60000); /* "Last minute" */
	await page.addStyleTag({ content: 'footer { display: none }' }); /* it names the router */
	const file = path.join(images, `${name}.png`);
	await page.screenshot({ path: file, fullPage: true });
	/* a third of the size. By octree, because median cut loses rare colours, such as a green light. */
	execFileSync('/usr/bin/python3', [ '-c', 'import sys; from PIL import Image; Image.open(sys.argv[1]).convert("RGB").quantize(256, Image.Quantize.FASTOCTREE, dither=0).save(sys.argv[1], optimize=True)', file ]);
	console.log(`docs/images/${name}.png`);
}

async function main([ url, ...pages ]) {
	if (!url)
		throw new Error('give the address of a router’s LuCI, such as http://192.168.1.1/cgi-bin/luci');
	const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: [ '--no-sandbox' ] });

	try {
		const page = await browser.newPage({ viewport: SIZE });

		page.setDefaultTimeout(TIMEOUT_MS);
		await login(page, url);
		for (const name of pages.length ? pages : fs.readdirSync(images).map((file) => path.parse(file).name))
			await take(page, url, name);
	} finally {
		await browser.close();
	}
}

main(process.argv.slice(2)).catch((err) => {
	console.error(`pictures: ${err.message}`);
	process.exitCode = 1;
});
