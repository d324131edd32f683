// SPDX-License-Identifier: Apache-2.0
'use strict';
// Every field of the forms, once: set in a browser, saved and applied. The configuration then
// has the value and no other change, and the daemon, run as procd runs it, takes it over.

const assert = require('node:assert/strict');
const fs = require('node:fs');
const path = require('node:path');
const { spawnSync } = require('node:child_process');
const { after, before, test } = require('node:test');

const { open, show } = require('./browser.js');
const { root, tmp, uciText, Procd } = require('./init.js');

const { BQUIC, WIFIRRD } = process.env;
const namespace = `bquic-fields-${process.pid}`;
const files = path.join(tmp, 'fields');
const at = (name) => path.join(files, name);

/* Runs a command in the namespace. */
function run(...words) {
	const r = spawnSync('ip', [ 'netns', 'exec', namespace, ...words ], { encoding: 'utf8', input: '{}', env: { PATH: process.env.PATH, WIFIRRD, RUN: at('wifirr') } });
	assert.equal(r.status, 0, `${words.join(' ')}: ${r.stderr}`);
	return r.stdout;
}

async function until(what, fn) {
	for (let i = 0; i < 1200; i++) {
		const found = fn();
		if (found)
			return found;
		await new Promise((done) => setTimeout(done, 50));
	}
	throw new Error(`${what}: not within a minute`);
}

before(() => {
	for (const name of [ 'www', 'www2', 'keys' ])
		fs.mkdirSync(at(name), { recursive: true });
	assert.equal(spawnSync('ip', [ 'netns', 'add', namespace ]).status, 0);
	run('openssl', 'req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-subj', '/CN=x', '-keyout', at('keys/key'), '-out', at('keys/cert'));
	fs.cpSync(at('keys'), at('moved'), { recursive: true });
	run('ip', 'link', 'set', 'lo', 'up');
	for (const device of [ 'br-lan', 'wlan0', 'wan', 'ap0', 'ap1' ]) {
		run('ip', 'link', 'add', device, 'type', 'veth');
		run('ip', 'link', 'set', device, 'up');
	}
});
after(() => spawnSync('ip', [ 'netns', 'del', namespace ]));

/* The daemons of /etc/config/bquic. */
class Bquic {
	constructor() {
		this.procd = new Procd('bquic-gateway', namespace, { TEST_PROG: BQUIC, TEST_CONFIG: at('bquic'), TEST_DIR: at('made'), TEST_KERNEL: namespace });
	}

	ask(what) { return JSON.parse(run(BQUIC, 'rpcd', 'call', what, '--config', at('bquic'))); }

	async take(sections, changed) {
		const role = sections.gateway ? 'gateway' : 'relay';
		const was = fs.existsSync(at('bquic')) && this.ask('status')[role]?.reload?.at;

		fs.writeFileSync(at('bquic'), uciText(sections));
		const signalled = await this.procd.reload(sections);
		if (sections[role].enabled != '1') {
			await until('the end', () => !this.procd.running.has(role));
			return;
		}
		const status = await until(`${role}'s answer`, () => {
			const found = this.ask('status')[role];
			return (!signalled.includes(role) || found?.reload?.at != was) && found;
		});
		assert.equal(status.reload?.error ?? '', '');
		/* the daemon's own copy, which leaves out sections of peers that are off */
		const conf = fs.readFileSync(at(`made/${role}/conf`), 'utf8');
		for (const [ option, value ] of Object.entries(changed))
			for (const v of [ value ].flat())
				assert.ok(conf.includes(` '${option}' '${v}'\n`), `${option} ${v} in ${conf}`);
	}
}

/* Those of /etc/config/wifirr. */
class Wifirr {
	constructor() {
		this.procd = new Procd('wifirr-sched', namespace, { TEST_PROG: WIFIRRD, TEST_RUN: at('wifirr'), TEST_DIR: at('wifirr-made'), TEST_KERNEL: namespace });
	}

	async take(sections, changed) {
		const [ { device, enabled } ] = Object.values(sections);
		const read = () => fs.readFileSync(this.procd.running.get(device).log, 'utf8').split('SIGHUP: reading').length;
		const was = this.procd.running.has(device) && read();
		const signalled = await this.procd.reload(sections);

		assert.deepEqual([ ...this.procd.running.keys() ], enabled == '1' ? [ device ] : []);
		if (enabled != '1')
			return;
		const status = await until(`${device}'s answer`, () => (!signalled.includes(device) || read() > was)
			&& JSON.parse(run('busybox', 'sh', '-u', path.join(root, 'package/wifirr-sched/files/usr/libexec/rpcd/wifirr'), 'call', 'status')).schedulers.find((s) => s.device == device));
		assert.equal(status.reload?.error ?? '', '');
		const options = fs.readFileSync(at(`wifirr-made/${device}.options`), 'utf8').split('\n');
		for (const [ option, value ] of Object.entries(changed).filter(([ o ]) => o != 'device'))
			for (const v of [ value ].flat())
				assert.ok(options.includes(option.replace(/_/g, '-') + (/^(exempt_voice|verbose)$/.test(option) ? '' : `=${v}`)), `${option} ${v} in ${options}`);
	}
}

const pin = (c) => `sha256/${c.repeat(42)}A=`;
const keys = (where) => ({ certificate: at(`${where}/cert`), key: at(`${where}/key`) });
const relay = (more) => ({
	'.type': 'relay', '.name': 'relay', enabled: '1', pin: [ pin('A') ], token: 'first-token', state_dir: at('state'), status_socket: at('relay.sock'), ...more
});
const profile = {
	base: 'bquic', ack_packets: '5', ack_delay: '6', ack_rtt_divisor: '7', ack_rtt: 'min', ack_after: '8', ack_reordering: '9', ask_peer: '1', burst_packets: '11', congestion: 'rate',
	slow_start_divisor: '12', slow_start_min: '13', slow_start_max: '14', loss_eighths: '15', loss_packets: '16', window_updates: '1', fast_pmtu: '1', gso: '0'
};

/* By page: sections, and a value for each of their fields; an object: what has to change with it. */
for (const [ name, view, Daemon, sections, values ] of [
	[ 'gateway', 'gateway', Bquic, {
		gateway: { '.type': 'gateway', '.name': 'gateway', enabled: '1', listen: '127.0.0.1:18443', ...keys('keys'), redirect: '127.0.0.1:18080', state_dir: at('state'),
			status_socket: at('gateway.sock'), token: 'first-token' },
		folder: { '.type': 'site', host: [ 'a.example' ], root: at('www'), ...keys('keys') },
		servers: { '.type': 'site', host: [ 'b.example' ], origin: [ 'http://127.0.0.1:1' ] },
		north: { '.type': 'peer', enabled: '1', token: [ 'north-token' ] },
		mine: { '.type': 'profile', '.name': 'mine' }
	}, {
		gateway: {
			enabled: '0', listen: '127.0.0.1:18444', mesh: [ '10.7.0.0/16' ], mesh_profile: 'standard', token: 'second-token', connect_from: [ '10.8.0.0/16' ], connect_to: [ '0.0.0.0/0' ],
			...keys('moved'), max_connections: '500', memory: '64', access_log: at('logs/access.log'), redirect: '127.0.0.1:18081', acme_webroot: at('www'),
			metrics: '127.0.0.1:19464', state_dir: at('state2'), status_socket: at('gateway2.sock'), log_level: 'debug'
		},
		folder: { host: [ 'c.example' ], root: at('www2'), listing: '1', ...keys('moved') },
		servers: { origin: [ 'https://127.0.0.1:2' ], early_data: '1', origin_ca: at('keys/cert') },
		north: { token: [ 'other-token' ], prefix: [ '10.9.0.0/16' ], tunnels: '100', rate: '50', enabled: '0' },
		mine: profile
	} ],
	[ 'relay', 'relay', Bquic, { relay: relay({ gateway: [ '127.0.0.1:1' ] }), mine: { '.type': 'profile', '.name': 'mine' } }, {
		relay: {
			enabled: '0', gateway: [ '127.0.0.1:2' ], pin: [ pin('B') ], token: 'second-token', interface: [ 'wlan0' ], uplink: [ 'wan' ], bridge: '0', exclude: [ '192.0.2.0/24' ],
			exclude_port: [ '25' ], udp_port: [ '53' ], profile: 'standard', server_name: 'gateway.example', ca: { ca: at('keys/cert'), pin: [] }, connections: '2', mode: 'tproxy',
			port: '12444', cpu_share: '40', control_share: '10', auto: '1', state_dir: at('state2'), status_socket: at('relay2.sock'), metrics: '127.0.0.1:19465', log_level: 'debug'
		},
		mine: profile
	} ],
	[ 'relay with several gateways', 'relay', Bquic, {
		relay: relay(), first: { '.type': 'upstream', '.name': 'first', enabled: '1', gateway: '127.0.0.1:1' }, second: { '.type': 'upstream', '.name': 'second', gateway: '127.0.0.1:2' }
	}, { first: { enabled: '0', gateway: '127.0.0.1:3', weight: '7' } } ],
	[ 'scheduler', 'scheduler', Wifirr, { ap0: { '.type': 'scheduler', '.name': 'ap0', enabled: '1', device: 'ap0', rate: '20000' } }, {
		ap0: {
			device: 'ap1', engage: 'always', mode: 'paper', active: '4', slot: '700', trickle: '30', always: [ '02:00:00:00:00:01' ], ignore: [ '02:00:00:00:00:02' ], exempt_voice: '1',
			backend: 'htb', rate: '30000', weights: '300,2', windows: 'off', rts: '600', demand_bytes: '4000', demand_rate: '70', busy_threshold: '40', engage_delay: '2000', match: 'ip',
			verbose: '1', enabled: '0'
		}
	} ]
])
	test(`${name}: each field reaches the daemon`, async () => {
		const file = Daemon == Bquic ? 'bquic' : 'wifirr', daemon = new Daemon();
		const profiles = JSON.parse(run(BQUIC, 'rpcd', 'call', 'profiles', '--config', '/dev/null'));
		const { page, errors } = await open(1200, { 'bquic.profiles': profiles }, { [file]: sections });
		const apply = () => page.evaluate((file) => {
			window.env.apply();
			return structuredClone(window.config[file]);
		}, file);
		const field = (id, option) => page.locator(`[id="widget.cbid.${file}.${id}.${option}"]`);
		const kind = (id, option) => field(id, option).evaluate((e) => e.type);
		const get = async (id, option) => await kind(id, option) == 'checkbox' ? (await field(id, option).isChecked() ? '1' : '0') : field(id, option).inputValue();
		const set = async (id, option, value) => {
			const how = await kind(id, option), text = [ value ].flat().join(' ');
			return how == 'checkbox' ? field(id, option).setChecked(text == '1') : how == 'select-one' ? field(id, option).selectOption(text) : field(id, option).fill(text);
		};

		try {
			await show(page, view, 1);
			const base = await apply();
			await daemon.take(base, {});

			/* no field is forgotten */
			const shown = await page.evaluate(() => window.env.sections.flatMap((s) => s.options.map((o) => `${s.type}.${o.name}`)).filter((o) => !o.includes('._')));
			const given = Object.entries(values).flatMap(([ id, options ]) => Object.keys(options).map((o) => `${sections[id]['.type']}.${o}`));
			assert.deepEqual([ ...new Set(given) ].sort(), shown.filter((o) => Object.keys(values).some((id) => o.startsWith(`${sections[id]['.type']}.`))).sort());

			for (const [ id, options ] of Object.entries(values))
				for (const [ option, value ] of Object.entries(options)) {
					const changes = value.constructor == Object ? value : { [option]: value }, was = {};

					for (const [ o, v ] of Object.entries(changes)) {
						was[o] = await get(id, o);
						await set(id, o, v);
					}
					const now = await apply(), wants = structuredClone(base);
					for (const [ o, v ] of Object.entries(changes))
						if (v.length)
							wants[id][o] = v;
						else
							delete wants[id][o];
					assert.deepEqual(now, wants, `${id}.${option}`);
					await daemon.take(now, now[id].enabled == '0' ? {} : changes).catch((e) => { throw new Error(`${id}.${option}: ${e.message}`); });
					for (const [ o, v ] of Object.entries(was))
						await set(id, o, v);
					assert.deepEqual(await apply(), base, `${id}.${option}, set back`);
				}
			assert.deepEqual(errors, []);
		} finally {
			await daemon.procd.end();
			await page.close();
		}
	});
