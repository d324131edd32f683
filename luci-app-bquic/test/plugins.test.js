// SPDX-License-Identifier: Apache-2.0
'use strict';
// The init scripts and the rpcd plugins, with BusyBox's shell as on a router.

const assert = require('node:assert/strict');
const fs = require('node:fs');
const path = require('node:path');
const { spawnSync } = require('node:child_process');
const test = require('node:test');

const root = path.resolve(__dirname, '../..');
const tmp = fs.mkdtempSync(path.join(process.env.TEST_TMP, 'plugins-'));
const { BQUIC, WIFIRRD } = process.env;
const plugin = path.join(root, 'package/wifirr-sched/files/usr/libexec/rpcd/wifirr');

/* init(script, fn, { section: { '.type', option: value } }, environment) -> lines of words */
function init(name, fn, sections, env) {
	const script = path.join(root, `package/${name}/files/etc/init.d/${name}`);
	const variables = { SECTIONS: Object.entries(sections).map(([ s, o ]) => `${o['.type']}/${s}`).join(' ') };

	for (const [ s, options ] of Object.entries(sections))
		for (const [ o, value ] of Object.entries(options))
			if (o != '.type')
				variables[`O_${s}_${o}`] = value;
	const r = spawnSync('busybox', [ 'sh', '-u', path.join(__dirname, 'rc.sh'), script, fn ], {
		encoding: 'utf8', cwd: tmp, env: { PATH: process.env.PATH, ...variables, ...env }
	});

	return { status: r.status, error: r.stderr, lines: r.stdout.split('\n').filter((l) => l).map((l) => l.split('|')) };
}

/* The words of the daemon's command line. */
function command(lines) {
	return lines.filter((l) => /^procd_(set|append)_param$/.test(l[0]) && l[1] == 'command').flatMap((l) => l.slice(2));
}

/* A UCI file as sections and as `uci export` prints it. */
function uciFile(file) {
	const sections = {};
	let name = null, text = 'package x\n';

	for (const line of fs.readFileSync(file, 'utf8').split('\n')) {
		const m = line.match(/^\s*(config|option|list) (\S+)(?: '(.*)')?$/);
		if (m?.[1] == 'config') {
			name = m[3];
			sections[name] = { '.type': m[2] };
			text += `\nconfig ${m[2]} '${m[3]}'\n`;
		}
		else if (m) {
			sections[name][m[2]] = m[1] == 'list' && sections[name][m[2]] ? `${sections[name][m[2]]} ${m[3]}` : m[3];
			text += `\t${m[1]} ${m[2]} '${m[3]}'\n`;
		}
	}

	return { sections, text };
}

function gatewayEnvironment(name) {
	const file = path.join(tmp, name);
	const run = path.join(tmp, 'run');

	return { TEST_PROG: BQUIC, TEST_CONFIG: file, TEST_RUN: run, EXPORT: `${file}.export` };
}

function gateway(change) {
	const { sections, text } = uciFile(path.join(root, 'files/etc/config/bquic'));
	const env = gatewayEnvironment('bquic');
	const changed = change(sections, text) ?? text;

	fs.writeFileSync(env.TEST_CONFIG, changed);
	fs.writeFileSync(env.EXPORT, changed);
	sections.gateway.state_dir = path.join(tmp, 'state');

	return { sections, env };
}

test('as installed, nothing starts', () => {
	const { sections, env } = gateway(() => null);

	const { status, lines, error } = init('bquic-gateway', 'start_service', sections, env);
	assert.deepEqual([ status, lines, error ], [ 0, [], '' ]);
	const wifirr = uciFile(path.join(root, 'files/etc/config/wifirr')).sections;
	assert.ok(Object.keys(wifirr).length > 0);
	const r = init('wifirr-sched', 'start_service', wifirr, { TEST_RUN: path.join(tmp, 'run') });
	assert.deepEqual([ r.status, r.lines, r.error ], [ 0, [], '' ]);
});

test('gateway: one instance, its own configuration, a hole in the firewall', () => {
	const { sections, env } = gateway((s, text) => {
		s.gateway.enabled = '1';
		return text.replace(/(config gateway[^]*?enabled) '0'/, "$1 '1'");
	});
	const { lines, error, status } = init('bquic-gateway', 'start_service', sections, env);

	assert.equal(status, 0, error);
	assert.deepEqual(lines.filter((l) => l[0] == 'procd_open_instance'), [ [ 'procd_open_instance', 'gateway' ] ]);
	assert.deepEqual(command(lines), [ BQUIC, 'gateway', '--config', `${env.TEST_RUN}/gateway.conf` ]);
	const conf = fs.readFileSync(`${env.TEST_RUN}/gateway.conf`, 'utf8');
	assert.match(conf, /^config gateway 'gateway'\n/);
	assert.doesNotMatch(conf, /config relay/);
	assert.equal(fs.statSync(`${env.TEST_RUN}/gateway.conf`).mode & 0o777, 0o640);
	const said = lines.map((l) => l.slice(1).join(' '));
	for (const words of [ 'proto tcpudp', 'dest_port 8443', 'target ACCEPT', ' 10.0.0.0/8', ' fd00::/8' ])
		assert.ok(said.includes(words), words);
	/* what is extracted is what the daemon takes */
	assert.equal(spawnSync(BQUIC, [ 'check', `${env.TEST_RUN}/gateway.conf` ]).status, 0);
});

test('a mistake starts nothing, and a reload with one leaves things as they are', () => {
	const { sections, env } = gateway((s, text) => {
		s.gateway.enabled = '1';
		return text.replace("listen ':8443'", "listen '$(id)'");
	});

	for (const fn of [ 'start_service', 'reload_service' ]) {
		const { lines, error, status } = init('bquic-gateway', fn, sections, env);
		assert.equal(status, 1);
		assert.match(error, /bquic:\d+: .*listen/);
		assert.ok(lines.every((l) => l[0] == 'log'), lines);
	}
});

test('a reload: the daemon reads again, and is started anew only for what it cannot change', () => {
	const { sections, env } = gateway((s, text) => {
		s.gateway.enabled = '1';
		return text.replace(/(config gateway[^]*?enabled) '0'/, "$1 '1'");
	});
	const fixed = () => fs.readFileSync(path.join(env.TEST_RUN, 'gateway.fixed'), 'utf8');
	const signals = (change, RUNNING) => {
		Object.assign(sections.gateway, change);
		const { status, error, lines } = init('bquic-gateway', 'reload_service', sections, { ...env, RUNNING });
		assert.equal(status, 0, error);
		assert.ok(lines.some((l) => l.join(' ') == `procd_set_param file ${env.TEST_RUN}/gateway.fixed`));
		return lines.filter((l) => l[0] == 'procd_send_signal').map((l) => l.slice(1).join(' '));
	};

	fs.rmSync(path.join(env.TEST_RUN, 'gateway.fixed'), { force: true });
	assert.deepEqual(signals({}, ''), []);
	const first = fixed();
	/* nothing that needs more: read again */
	for (const change of [ {}, { token: 'another-token' }, { mesh: '10.1.0.0/16' }, { max_connections: '7' } ]) {
		assert.deepEqual(signals(change, 'gateway'), [ 'bquic-gateway gateway HUP' ], JSON.stringify(change));
		assert.equal(fixed(), first);
	}
	/* procd sees another file, and no signal may hit a program that has just begun */
	for (const change of [ { listen: ':9443' }, { status_socket: '/tmp/other.sock' }, { metrics: '127.0.0.1:9464' }, { certificate: `${tmp}/c.pem`, key: `${tmp}/k.pem` } ]) {
		const before = fixed();
		assert.deepEqual(signals(change, 'gateway'), [], JSON.stringify(change));
		assert.notEqual(fixed(), before);
	}
	/* one that has died is started, not told */
	assert.deepEqual(signals({}, ''), []);
});

test('directories of sites and certificates, with blanks too, and of the log are in the jail', () => {
	const { sections, env } = gateway((s, text) => {
		Object.assign(s.gateway, { enabled: '1', access_log: `${tmp}/logs/bquic/access.log` });
		s.site1 = { '.type': 'site', host: '*', root: path.join(tmp, 'my site') };
		s.site2 = { '.type': 'site', host: 'x.example', root: '/www/x', certificate: `${tmp}/certs/c.pem`, key: `${tmp}/certs/k.pem` };
		return text.replace(/(config gateway[^]*?enabled) '0'/, "$1 '1'");
	});
	for (const dir of [ 'my site', 'certs' ])
		fs.mkdirSync(path.join(tmp, dir), { recursive: true });
	const { lines, error } = init('bquic-gateway', 'start_service', sections, env);
	const mounts = (kind) => lines.filter((l) => l[0] == kind).flatMap((l) => l.slice(1));

	assert.equal(error, '');
	const seen = mounts('procd_add_jail_mount');
	for (const dir of [ path.join(tmp, 'my site'), `${tmp}/certs`, '/etc/hosts' ])
		assert.equal(seen.filter((m) => m == dir).length, 1, `${dir} in ${seen}`);
	assert.ok(!seen.includes('/www/x'));
	assert.deepEqual(mounts('procd_add_jail_mount_rw'), [ env.TEST_RUN, sections.gateway.state_dir, `${tmp}/logs/bquic` ]);
	assert.ok(fs.existsSync(`${tmp}/logs/bquic/access.log`));
});

test('relay: started with its own sections only', () => {
	const { sections, env } = gateway((s, text) => {
		Object.assign(s.relay, { enabled: '1', interface: 'br-lan wlan0' });
		return text.replace(/(config relay[^]*enabled) '0'/, "$1 '1'\n\toption gateway 'g.example:8443'\n\toption token '12345678'\n\toption pin 'sha256/" + 'A'.repeat(43) + "='");
	});
	const { lines, error } = init('bquic-gateway', 'start_service', sections, env);

	assert.deepEqual(command(lines), [ BQUIC, 'relay', '--config', `${env.TEST_RUN}/relay.conf` ], error);
	assert.doesNotMatch(fs.readFileSync(`${env.TEST_RUN}/relay.conf`, 'utf8'), /config gateway/);
	assert.deepEqual(lines.filter((l) => l[1] == 'device').map((l) => l[2]), [ 'br-lan', 'br-lan', 'wlan0', 'wlan0' ]);
	/* what TPROXY takes has the mark that the relay's own rules set */
	const mark = fs.readFileSync(path.join(root, 'package/bquic-gateway/src/internal/relay/capture.go'), 'utf8').match(/routeMark += "(\w+)"/)[1];
	assert.deepEqual(lines.filter((l) => l[1] == 'mark').map((l) => l[2]), [ mark, mark ]);

	const signals = (change) => {
		Object.assign(sections.relay, change);
		return init('bquic-gateway', 'reload_service', sections, { ...env, RUNNING: 'relay' }).lines
			.filter((l) => l[0] == 'procd_send_signal').map((l) => l.slice(1).join(' '));
	};
	for (const change of [ {}, { exclude: '192.0.2.0/24' }, { interface: 'br-lan' }, { gateway: 'other.example:8443' } ])
		assert.deepEqual(signals(change), [ 'bquic-gateway relay HUP' ], JSON.stringify(change));
	for (const change of [ { port: '12444' }, { mode: 'tproxy' }, { connections: '2' }, { status_socket: '/tmp/r.sock' }, { metrics: '127.0.0.1:9465' } ])
		assert.deepEqual(signals(change), [], JSON.stringify(change));
});

const hostile = [ '$(touch executed)', '`touch executed`', "'; touch executed; '", '"; touch executed; "', '<script>', '\\', '*', '&& touch executed' ];

/* the wifirr-sched script with the real daemon's check */
function scheduler(fn, options, env) {
	const run = path.join(tmp, 'run');
	const r = init('wifirr-sched', fn, { a: { '.type': 'scheduler', enabled: '1', ...options } }, { TEST_PROG: WIFIRRD, TEST_RUN: run, ...env });
	const file = path.join(run, `${options.device}.options`);

	return { ...r, run, text: r.lines.map((l) => l.join(' ')), file: fs.existsSync(file) ? fs.readFileSync(file, 'utf8') : null };
}

test('wifirr-sched: every option reaches the daemon, and only as itself', () => {
	const all = {
		backend: 'htb', mode: 'paper', engage: 'always', active: '4', slot: '500', trickle: '30', rate: '1000', weights: '9,1', rts: '500',
		demand_bytes: '1', demand_rate: '2', busy_threshold: '3', engage_delay: '4', match: 'ip'
	};
	const { lines, error, run, file } = scheduler('start_service', {
		device: 'lo', ...all, always: '02:00:00:00:00:01 02:00:00:00:00:02', ignore: '192.0.2.1', exempt_voice: '1', verbose: '2'
	});

	assert.deepEqual(command(lines), [ WIFIRRD, '--device', 'lo', '--control', `${run}/lo.sock`, '--options', `${run}/lo.options` ], error);
	assert.deepEqual(lines[0], [ 'procd_open_instance', 'lo' ]);
	assert.equal(file, Object.entries(all).map(([ o, v ]) => `${o.replace('_', '-')}=${v}\n`).join('') +
		'always=02:00:00:00:00:01\nalways=02:00:00:00:00:02\nignore=192.0.2.1\nexempt-voice\nverbose\nverbose\n');
	for (const value of [ ...hostile, '1,2\nverbose', '1,2;x', '1,2 3' ]) {
		fs.rmSync(path.join(run, 'lo.options'), { force: true });
		const r = scheduler('start_service', { device: 'lo', weights: value });
		assert.ok(r.text.join('\n').includes(`section a: weights ${value}: must be`), r.text);
		assert.equal(r.file, null);
		scheduler('start_service', { device: value });
	}
	assert.ok(!fs.existsSync(path.join(tmp, 'executed')));
});

test('wifirr-sched: an impossible value or a missing device starts nothing and says so', () => {
	for (const [ options, env, text ] of [
		[ { device: 'lo' }, { INVALID: '1' }, /section a: an option has an impossible value/ ],
		[ {}, {}, /section a: option device is missing/ ],
		[ { device: 'lo', weights: '70000,1' }, {}, /section a: weights 70000: must be a whole number from 1 to 65535/ ],
		[ { device: 'lo', rate: '1000', trickle: '1000' }, {}, /section a: .*trickle 1000: not below --rate 1000/ ],
		[ { device: 'nosuchdev0' }, {}, /section a: waiting for device nosuchdev0/ ]
	]) {
		/* and stops nothing on reload, unless it is only the device that is away */
		for (const fn of [ 'start_service', 'reload_service' ]) {
			const r = scheduler(fn, options, env);
			assert.equal(r.lines.length, 1, r.text);
			assert.match(r.text[0], text);
			if (fn == 'reload_service')
				assert.equal(r.status, text.source.includes('waiting') ? 0 : 1);
		}
	}
});

test('wifirr-sched: a reload tells the running daemon, and only that', () => {
	for (const [ RUNNING, wants ] of [ [ 'lo', [ 'procd_send_signal wifirr-sched lo HUP' ] ], [ '', [] ], [ 'other', [] ] ]) {
		const { text, lines } = scheduler('reload_service', { device: 'lo', slot: '700' }, { RUNNING });
		assert.deepEqual(text.filter((l) => l.startsWith('procd_send_signal')), wants);
		assert.deepEqual(lines[0], [ 'procd_open_instance', 'lo' ]);
	}
});

function call(words, env) {
	return spawnSync('busybox', [ 'sh', '-u', plugin, ...words ], { encoding: 'utf8', input: '{}', env: { PATH: process.env.PATH, WIFIRRD, ...env } });
}

test('rpcd plugin wifirr: nothing runs, unknown methods', () => {
	const RUN = path.join(tmp, 'none');

	for (const method of Object.keys(JSON.parse(call([ 'list' ], { RUN }).stdout)))
		assert.deepEqual(JSON.parse(call([ 'call', method ], { RUN }).stdout), { schedulers: [] });
	for (const words of [ [], [ 'call' ], [ 'call', '$(touch executed)' ], [ 'call', 'metrics' ] ])
		assert.notEqual(call(words, { RUN }).status, 0);
	fs.mkdirSync(RUN, { recursive: true });
	fs.writeFileSync(path.join(RUN, 'file.sock'), '');
	assert.deepEqual(JSON.parse(call([ 'call', 'status' ], { RUN }).stdout), { schedulers: [] });
});

test('rpcd plugin wifirr: two real schedulers', () => {
	const RUN = path.join(tmp, 'sched');

	fs.mkdirSync(RUN);
	/* in a network namespace of its own, which ends with the shell */
	const r = spawnSync('unshare', [ '-n', 'sh', '-ec', `
		for d in ap0 ap1.2; do
			ip link add "$d" type veth
			ip link set "$d" up
			"$WIFIRRD" --device "$d" --backend htb --rate 20000 --control "$RUN/$d.sock" &
			pids="\${pids:-} $!"
		done
		trap 'kill $pids; wait' EXIT
		n=0
		while [ ! -S "$RUN/ap0.sock" ] || [ ! -S "$RUN/ap1.2.sock" ]; do
			n=$((n + 1)); [ $n -lt 200 ] || exit 1
			sleep 0.05
		done
		for m in status clients pause status resume; do
			busybox sh -u "$PLUGIN" call $m </dev/null
		done` ], { encoding: 'utf8', env: { PATH: process.env.PATH, RUN, WIFIRRD, PLUGIN: plugin } });
	assert.equal(r.status, 0, r.stderr);
	const [ status, clients, pause, paused, resume ] = r.stdout.trim().split('}\n{').map((t, i, all) => JSON.parse((i ? '{' : '') + t + (i < all.length - 1 ? '}' : '')));

	assert.deepEqual(status.schedulers.map((s) => s.device), [ 'ap0', 'ap1.2' ]);
	assert.deepEqual(clients.schedulers.map((s) => [ s.device, s.clients.length ]), [ [ 'ap0', 0 ], [ 'ap1.2', 0 ] ]);
	assert.deepEqual(pause.schedulers, [ { paused: true }, { paused: true } ]);
	assert.deepEqual(paused.schedulers.map((s) => s.paused), [ true, true ]);
	assert.deepEqual(resume.schedulers, [ { paused: false }, { paused: false } ]);
});

test('rpcd plugin bquic: the protocol, and a real gateway', () => {
	const call = (method, input) => {
		const r = spawnSync(BQUIC, [ 'rpcd', 'call', method, '--config', path.join(tmp, 'g') ], { encoding: 'utf8', input: JSON.stringify(input) });
		assert.equal(r.status, 0, r.stderr);
		return JSON.parse(r.stdout);
	};

	fs.writeFileSync(path.join(tmp, 'g'), `config gateway 'gateway'
	option enabled '1'
	option listen '127.0.0.1:18443'
	option state_dir '${tmp}/gstate'
	option status_socket '${tmp}/g.sock'
config site 's'
	list host '*'
	option root '${tmp}'
`);
	assert.equal(call('check', {}).ok, true);
	fs.writeFileSync(path.join(tmp, 'file'), 'x'.repeat(100000));
	const r = spawnSync('unshare', [ '-n', 'sh', '-ec', `
		ip link set lo up
		"$BQUIC" gateway --config g 2>/dev/null &
		trap "kill $!; wait" EXIT
		n=0
		until "$BQUIC" status --socket g.sock >/dev/null 2>&1; do
			n=$((n + 1)); [ $n -lt 200 ] || exit 1
			sleep 0.05
		done
		pin=$("$BQUIC" status --json --socket g.sock | sed -n 's/.*"pin": "\\(.*\\)".*/\\1/p')
		echo '{"url":"https://localhost:18443/file","pin":"'"$pin"'","profile":"bquic"}' | "$BQUIC" rpcd call fetch --config g
		"$BQUIC" rpcd call status --config g </dev/null` ], { encoding: 'utf8', cwd: tmp, env: { PATH: process.env.PATH, BQUIC, HOME: tmp } });
	assert.equal(r.status, 0, r.stderr);
	const [ fetched, status ] = r.stdout.trim().split('\n').map((l) => JSON.parse(l));

	assert.equal(fetched.result?.bytes, 100000, JSON.stringify(fetched));
	assert.equal(status.gateway.role, 'gateway');
	assert.equal(status.gateway.connections, undefined);
	assert.equal(typeof status.gateway.live.packets_sent, 'number');
	assert.equal(status.relay, null);
});
