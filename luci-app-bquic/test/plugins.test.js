// SPDX-License-Identifier: Apache-2.0
'use strict';
// The init scripts and the rpcd plugins, with BusyBox's shell as on a router.

const assert = require('node:assert/strict');
const fs = require('node:fs');
const path = require('node:path');
const { spawnSync } = require('node:child_process');
const test = require('node:test');

const { root, tmp, init, command, uciFile, uciText } = require('./init.js');

const { BQUIC, WIFIRRD } = process.env;
const plugin = path.join(root, 'package/wifirr-sched/files/usr/libexec/rpcd/wifirr');

/* service(change) -> run(function, change): calls of the init script with the default file, changed. */
let scratches = 0;
function service(change, env) {
	const dir = path.join(tmp, `service${scratches++}`);
	const s = uciFile(path.join(root, 'files/etc/config/bquic'));
	const files = { TEST_PROG: BQUIC, TEST_CONFIG: path.join(dir, 'bquic'), TEST_DIR: path.join(dir, 'made'), TEST_RUN: path.join(dir, 'run') };

	fs.mkdirSync(dir);
	for (const role of [ 'gateway', 'relay' ])
		s[role].status_socket = `${dir}/run/${role}.sock`;
	s.gateway.state_dir = s.relay.state_dir = `${dir}/state`;
	change(s);

	const run = (fn, change, more) => {
		change?.(s);
		fs.writeFileSync(files.TEST_CONFIG, uciText(s));
		const r = init('bquic-gateway', fn, s, { ...files, ...env, ...more });
		const said = (word) => r.lines.filter((l) => l[0] == word).map((l) => l.slice(1).join(' '));
		return { ...r, said };
	};
	return Object.assign(run, { dir, sections: s, made: (name) => path.join(files.TEST_DIR, name) });
}

const onlyGateway = (s) => { s.gateway.enabled = '1'; };
const onlyRelay = (s) => Object.assign(s.relay, { enabled: '1', gateway: 'g.example:8443', token: '12345678', pin: `sha256/${'A'.repeat(43)}=` });
const user = 54321;

/* Runs a hotplug script as hotplug-call does. services is procd's list, config what uci shows. Returns the init scripts' calls. */
function hotplug(file, services, config, env) {
	const dir = fs.mkdtempSync(path.join(tmp, 'hotplug-'));
	const command = (name, text) => fs.writeFileSync(path.join(dir, name), `#!/bin/sh\n${text}\n`, { mode: 0o755 });

	fs.writeFileSync(path.join(dir, 'services'), JSON.stringify(services, null, '\t'));
	command('ubus', `[ "$*" = "call service list {\\"name\\":\\"\${EXPECTED}\\"}" ] && cat '${dir}/services'`);
	command('uci', `cat <<'END'\n${config}\nEND`);
	for (const name of [ 'bquic-gateway', 'wifirr-sched' ])
		command(name, `echo "${name} $*"`);
	const r = spawnSync('unshare', [ '-m', 'sh', '-ec', `mount --bind '${dir}' /etc/init.d; exec busybox sh -uc '. "$SCRIPT"'` ], {
		encoding: 'utf8', env: { PATH: `${dir}:${process.env.PATH}`, SCRIPT: path.join(root, 'package', file), EXPECTED: file.split('/')[0], ...env }
	});
	assert.deepEqual([ r.status, r.stderr ], [ 0, '' ]);

	return r.stdout;
}

test('as installed, nothing starts', () => {
	const { status, lines, error } = service(() => null)('start_service');
	assert.deepEqual([ status, lines, error ], [ 0, [], '' ]);
	const wifirr = uciFile(path.join(root, 'files/etc/config/wifirr'));
	assert.ok(Object.keys(wifirr).length > 0);
	const r = init('wifirr-sched', 'start_service', wifirr, { TEST_PROG: WIFIRRD, TEST_RUN: path.join(tmp, 'run'), TEST_DIR: path.join(tmp, 'made') });
	assert.deepEqual([ r.status, r.lines, r.error ], [ 0, [], '' ]);
});

test('gateway: one instance, its own configuration, a hole in the firewall', () => {
	const run = service((s) => {
		onlyGateway(s);
		s.north = { '.type': 'peer', token: 'north-token', prefix: '192.0.2.0/24' };
		s.south = { '.type': 'peer', token: 'south-token', prefix: '198.51.100.0/24', enabled: '0' };
	});
	const { lines, error, status, said } = run('start_service');
	const conf = run.made('gateway/conf');

	assert.equal(status, 0, error);
	assert.deepEqual(said('procd_open_instance'), [ 'gateway' ]);
	assert.deepEqual(command(lines), [ BQUIC, 'gateway', '--config', conf ]);
	const text = fs.readFileSync(conf, 'utf8');
	assert.match(text, /^config 'gateway' 'gateway'\n/);
	assert.match(text, /^config 'peer' 'north'\n/m);
	assert.doesNotMatch(text, /config 'relay'/);
	assert.equal(fs.statSync(conf).mode & 0o777, 0o640);
	assert.deepEqual(said('json_add_string'), [ 'type rule', 'src *', 'proto tcpudp', 'dest_port 8443', 'target ACCEPT', ' 10.0.0.0/8', ' fd00::/8', ' 192.0.2.0/24' ]);
	assert.deepEqual(said('json_add_array'), [ 'firewall', 'src_ip' ]);
	assert.equal(said('json_close_array').length, 2);
	/* procd never gives up; OpenWrt's default is five restarts in an hour */
	assert.ok(said('procd_set_param').includes('respawn 3600 5 0'));
	/* the extracted values are those that the daemon uses */
	assert.equal(spawnSync(BQUIC, [ 'check', conf ]).status, 0);
});

test('a start starts what has no mistake, and a reload with one leaves things as they are', () => {
	for (const [ change, text, started ] of [
		[ (s) => { s.gateway.listen = '$(id)'; }, /bquic:\d+: .*listen/, [] ],
		[ (s) => Object.assign(s.gateway, { certificate: '/nonexistent/c', key: '/nonexistent/k' }), /gateway.certificate, gateway.key: .*nonexistent/, [ 'relay' ] ],
		[ (s) => { delete s.relay.pin; s.relay.ca = '/nonexistent/ca'; }, /relay.ca: .*nonexistent/, [ 'gateway' ] ],
		/* values that procd cannot be told in one line */
		[ (s) => { s.x = { '.type': 'site', host: '*', root: `${tmp}/a\nrule` }; fs.mkdirSync(s.x.root, { recursive: true }); }, /control character/, [ 'relay' ] ]
	])
		for (const fn of [ 'start_service', 'reload_service' ]) {
			const { lines, error, status, said } = service((s) => { onlyGateway(s); onlyRelay(s); change(s); })(fn);
			assert.equal(status, 1);
			assert.match(error, text);
			assert.equal(error.split('\n').length, 2, error); /* said once */
			assert.ok(lines.length > 0 && lines[0][0] == 'log', JSON.stringify(lines));
			assert.deepEqual(said('procd_open_instance'), fn == 'start_service' ? started : []);
			assert.ok(started.length && fn == 'start_service' || lines.every((l) => !/^(procd|json)/.test(l[0])), JSON.stringify(lines));
		}
});

test('a reload that is refused for one daemon replaces nothing of the other', () => {
	const run = service((s) => { onlyGateway(s); onlyRelay(s); });
	const files = () => [ 'gateway/conf', 'gateway/fixed', 'relay/conf', 'relay/fixed' ].map((name) => fs.readFileSync(run.made(name), 'utf8'));
	run('start_service');
	const before = files();
	const { status } = run('reload_service', (s) => { s.gateway.listen = ':1234'; delete s.relay.pin; s.relay.ca = '/nonexistent/ca'; });
	assert.equal(status, 1);
	assert.deepEqual(files(), before);
});

test('a reload ends a daemon that is switched off while the other one lacks its certificate', () => {
	for (const running of [ [ 'relay' ], [] ]) {
		const run = service((s) => { onlyGateway(s); s.gateway.certificate = '/nonexistent/c'; s.gateway.key = '/nonexistent/k'; });
		const { lines, status } = run('reload_service', null, { RUNNING: running.join(' ') });
		assert.equal(status, 1);
		assert.deepEqual(lines.filter((l) => /^procd/.test(l[0])).map((l) => l.join(' ')),
			running.flatMap((role) => [ `procd_kill bquic-gateway ${role}`, 'procd_set_config_changed firewall' ]));
	}
});

test('a mistake ends no running daemon when apk starts the service after an upgrade', () => {
	const mistake = (s) => { onlyGateway(s); s.gateway.listen = 'nowhere'; };

	assert.equal(service(onlyGateway)('start').method, 'set');
	assert.equal(service(mistake)('start').method, 'add');
	/* the service knows neither what runs nor its options any more, if it forgets them */
	scheduler('start', { device: 'lo', rate: '1000' });
	const { method, text, file } = scheduler('start', { device: 'lo', rate: '1000', slot: 'x' }, { INVALID: 'slot', RUNNING: 'lo' });
	assert.deepEqual([ method, text.filter((l) => l.startsWith('procd')), file ], [ 'add', [], 'rate=1000\n' ]);
});

test('an emptied file, as uci leaves it if the flash is full, ends no running daemon and is named', () => {
	const run = service((s) => { onlyGateway(s); onlyRelay(s); });
	const files = () => [ 'gateway/conf', 'gateway/fixed', 'relay/conf', 'relay/fixed' ].map((name) => fs.readFileSync(run.made(name), 'utf8'));
	run('start_service');
	const before = files();
	for (const fn of [ 'reload_service', 'start' ]) {
		const { status, error, lines, method } = run(fn, (s) => Object.keys(s).forEach((name) => delete s[name]), { RUNNING: 'gateway relay' });
		assert.equal(fs.statSync(path.join(run.dir, 'bquic')).size, 0);
		assert.deepEqual([ status, method ], [ 1, fn == 'start' ? 'add' : undefined ]);
		assert.match(error, /bquic:1: the file is empty: uci leaves it so if the flash is full/);
		assert.ok(lines.every((l) => !/^procd_(open|kill)/.test(l[0])), JSON.stringify(lines));
		assert.deepEqual(files(), before);
	}

	const config = path.join(tmp, 'wifirr-emptied'), dirs = { TEST_PROG: WIFIRRD, TEST_RUN: path.join(tmp, 'run-emptied'), TEST_DIR: path.join(tmp, 'made-emptied') };
	const on = { a: { '.type': 'scheduler', enabled: '1', device: 'lo', rate: '1000' } };
	init('wifirr-sched', 'start', on, dirs);
	fs.writeFileSync(config, '');
	for (const fn of [ 'check', 'reload_service', 'start' ]) {
		const { status, lines, method } = init('wifirr-sched', fn, {}, { ...dirs, TEST_CONFIG: config, RUNNING: 'lo' });
		assert.deepEqual([ status, method ], [ 1, fn == 'check' ? undefined : 'add' ], fn);
		assert.ok(lines.length == 1 && lines[0].at(-1).endsWith('/etc/config/wifirr: the file is empty: uci leaves it so if the flash is full'), JSON.stringify(lines));
		assert.deepEqual(fs.readdirSync(dirs.TEST_DIR), [ 'lo.options', 'program' ]);
	}
	/* as uci leaves it when the last section is deleted */
	fs.writeFileSync(config, '\n');
	assert.equal(init('wifirr-sched', 'start', {}, { ...dirs, TEST_CONFIG: config, RUNNING: 'lo' }).method, 'set');
	assert.deepEqual(fs.readdirSync(dirs.TEST_DIR), [ 'program' ]);
});

test('an upgrade restarts the daemon, whatever times and size the package gives the program', () => {
	const program = path.join(tmp, 'installed');
	const run = service(onlyGateway, { TEST_PROG: program });
	const installed = () => {
		/* as opkg and apk do it, with the times of the package */
		fs.copyFileSync(BQUIC, `${program}.new`);
		fs.utimesSync(`${program}.new`, 1e9, 1e9);
		fs.renameSync(`${program}.new`, program);
		const { error, said } = run('start_service');
		assert.deepEqual(said('procd_open_instance'), [ 'gateway' ], error);
		return fs.readFileSync(run.made('gateway/fixed'), 'utf8');
	};

	assert.notEqual(installed(), installed());
});

test('a reload: the daemon reads again, and is started anew only for what it cannot change', () => {
	const run = service(onlyGateway);
	const fixed = () => fs.readFileSync(run.made('gateway/fixed'), 'utf8');
	const signals = (change, RUNNING) => {
		const { status, error, said } = run('reload_service', (s) => Object.assign(s.gateway, change), { RUNNING });
		assert.equal(status, 0, error);
		assert.ok(said('procd_set_param').includes(`file ${run.made('gateway/fixed')}`));
		return said('procd_send_signal');
	};

	assert.deepEqual(signals({}, ''), []);
	const first = fixed();
	/* nothing that needs a restart: reload */
	for (const change of [ {}, { token: 'another-token' }, { mesh: '10.1.0.0/16' }, { max_connections: '7' } ]) {
		assert.deepEqual(signals(change, 'gateway'), [ 'bquic-gateway gateway HUP' ], JSON.stringify(change));
		assert.equal(fixed(), first);
	}
	/* procd sees a changed file, and no signal may hit a program that has just started */
	const pair = { certificate: `${tmp}/pair/cert.pem`, key: `${tmp}/pair/key.pem` };
	fs.mkdirSync(`${tmp}/pair`);
	assert.equal(spawnSync('openssl', [ 'req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-subj', '/CN=x', '-keyout', pair.key, '-out', pair.certificate ]).status, 0);
	for (const change of [ { listen: ':9443' }, { status_socket: `${tmp}/other.sock` }, { metrics: '127.0.0.1:9464' }, pair ]) {
		const before = fixed();
		assert.deepEqual(signals(change, 'gateway'), [], JSON.stringify(change));
		assert.notEqual(fixed(), before);
	}
	/* a dead daemon is started, not signalled */
	assert.deepEqual(signals({}, ''), []);
});

test('directories of sites and certificates, with blanks too, and of the log are in the jail', () => {
	const dir = path.join(tmp, 'seen');
	for (const name of [ 'my  site', 'certs', 'www' ])
		fs.mkdirSync(path.join(dir, name), { recursive: true });
	fs.writeFileSync(`${dir}/certs/ca.pem`, fs.readFileSync(path.join(root, 'package/bquic-gateway/src/internal/cert/testdata/cert.pem')));
	const run = service((s) => {
		Object.assign(s.gateway, { enabled: '1', access_log: `${dir}/logs/bquic/access.log` });
		s.site1 = { '.type': 'site', host: '*', root: `${dir}/my  site` };
		s.site2 = { '.type': 'site', host: 'x.example', origin: 'https://192.0.2.1', origin_ca: `${dir}/certs/ca.pem` };
		s.site3 = { '.type': 'site', host: 'y.example', root: '/srv' };
	}, { TEST_USER: user });
	const { error, said } = run('start_service');

	assert.equal(error, '');
	assert.deepEqual(said('procd_add_jail'), [ 'bquic-gateway' ]);
	const seen = said('procd_add_jail_mount');
	for (const name of [ `${dir}/my  site`, `${dir}/certs`, '/etc/hosts', run.made('gateway') ])
		assert.equal(seen.filter((m) => m == name).length, 1, `${name} in ${seen}`);
	assert.deepEqual(said('procd_add_jail_mount_rw'), [ `${run.dir}/run`, `${run.dir}/state`, `${dir}/logs/bquic` ]);
	for (const name of [ `${run.dir}/run`, `${run.dir}/state`, `${dir}/logs/bquic` ])
		assert.equal(fs.statSync(name).uid, user, name);
	assert.equal(fs.statSync(run.made('gateway')).uid, 0);
	assert.equal(fs.statSync(run.made('gateway/conf')).gid, user);
});

test('no daemon runs as root where there is a jail, nor with more rights than its file has', () => {
	const limits = (text) => text.split('\n').filter((l) => /^procd_set_param (user|group|capabilities|no_new_privs|limits) /.test(l)).map((l) => l.replace('procd_set_param ', ''));
	const started = service((s) => { onlyGateway(s); onlyRelay(s); }, { TEST_USER: user })('start_service').lines.map((l) => l.join(' ')).join('\n').split('procd_close_instance');

	for (const [ i, role ] of [ 'gateway', 'relay' ].entries()) {
		/* files for a socket for each connection */
		const [ , files ] = fs.readFileSync(path.join(root, `docs/systemd/bquic-${role}.service`), 'utf8').match(/^LimitNOFILE=(\d+)$/m);
		assert.deepEqual(limits(started[i]), [ `limits nofile=${files} ${files}`, 'user bquic', 'group bquic', `capabilities /etc/capabilities/bquic-${role}.json`, 'no_new_privs 1' ]);
	}
	const [ wifirrd ] = scheduler('start_service', { device: 'lo', rate: '1000' }, { TEST_USER: user }).text.join('\n').split('procd_close_instance');
	assert.deepEqual(limits(wifirrd), [ 'user wifirr', 'group network', 'capabilities /etc/capabilities/wifirr-sched.json', 'no_new_privs 1' ]);
	for (const name of [ 'bquic-gateway/files/etc/capabilities/bquic-gateway', 'bquic-gateway/files/etc/capabilities/bquic-relay', 'wifirr-sched/files/etc/capabilities/wifirr-sched' ])
		assert.ok(fs.existsSync(path.join(root, `package/${name}.json`)), name);
});

test('root writes, gives away and follows nothing that the daemon could have planted', () => {
	const victim = path.join(tmp, 'victim'), logs = path.join(tmp, 'planted/bquic');
	const run = service((s) => {
		onlyGateway(s);
		onlyRelay(s);
		s.gateway.access_log = `${logs}/access.log`;
	}, { TEST_USER: user });
	const planted = [];
	const plant = (dir, ...names) => {
		fs.mkdirSync(dir, { recursive: true });
		fs.chownSync(dir, user, user);
		for (const name of names) {
			fs.symlinkSync(victim, path.join(dir, name));
			fs.lchownSync(path.join(dir, name), user, user);
			planted.push(path.join(dir, name));
		}
	};

	fs.writeFileSync(victim, 'precious');
	plant(`${run.dir}/run`, 'gateway.conf', 'gateway.fixed', 'gateway', 'relay.conf', 'relay.fixed', 'relay', 'conf', 'fixed');
	plant(`${run.dir}/state`, 'cert.pem.tmp');
	plant(logs, 'access.log');
	const before = fs.statSync(victim);
	const { status, error } = run('start_service');
	const after = fs.statSync(victim);
	assert.equal(fs.readFileSync(victim, 'utf8'), 'precious');
	assert.deepEqual([ after.uid, after.gid, after.mode ], [ before.uid, before.gid, before.mode ]);
	for (const name of planted)
		assert.ok(fs.lstatSync(name).isSymbolicLink() && fs.lstatSync(name).uid == user, name);
	assert.equal(status, 0, error);
});

test('a site on a drive that is mounted after the start: the gateway starts without it, and restarts then, unless the service was stopped', () => {
	const run = service(onlyGateway);
	const drive = path.join(run.dir, 'drive');
	const plugged = (ACTION, services) => hotplug('bquic-gateway/files/etc/hotplug.d/block/50-bquic-gateway', services, '', { ACTION, DEVNAME: 'sda1' });

	const started = (change) => {
		const { error, said } = run('start_service', change);

		assert.deepEqual(said('procd_open_instance'), [ 'gateway' ], error);
		return fs.readFileSync(run.made('gateway/fixed'), 'utf8');
	};
	const without = started((s) => { s.disk = { '.type': 'site', host: '*', root: drive }; });
	assert.equal(plugged('add', { 'bquic-gateway': {} }), 'bquic-gateway start\n');
	fs.mkdirSync(drive);
	assert.notEqual(started(), without);
	for (const [ action, services ] of [ [ 'add', {} ], [ 'remove', { 'bquic-gateway': {} } ] ])
		assert.equal(plugged(action, services), '', `${action} ${JSON.stringify(services)}`);
});

test("a directory of the system's, or of somebody else's, is not given to the daemon", () => {
	for (const uid of [ 0, 1000 ]) {
		const run = service(onlyGateway, { TEST_USER: user });
		const dir = `${run.dir}/etc`;
		fs.mkdirSync(`${dir}/config`, { recursive: true });
		fs.writeFileSync(`${dir}/config/network`, '');
		fs.chownSync(dir, uid, uid);
		const before = fs.statSync(dir);
		const { status, error, lines } = run('start_service', (s) => { s.gateway.state_dir = dir; });
		assert.equal(fs.statSync(dir).mode, before.mode);
		assert.equal(fs.statSync(dir).uid, uid);
		assert.equal(fs.statSync(`${dir}/config/network`).uid, 0);
		assert.equal(status, 1);
		assert.match(error, new RegExp(`gateway.state_dir: .*/etc belongs to user ${uid} and is not empty`));
		assert.ok(lines.every((l) => l[0] == 'log'), lines);
	}
});

test('relay: started with its own sections only', () => {
	const run = service((s) => { onlyRelay(s); s.relay.interface = 'br-lan wlan0'; });
	const { lines, error, said } = run('start_service');

	assert.deepEqual(command(lines), [ BQUIC, 'relay', '--config', run.made('relay/conf') ], error);
	assert.doesNotMatch(fs.readFileSync(run.made('relay/conf'), 'utf8'), /config 'gateway'/);
	/* procd's kill comes after the daemon's own timeout */
	const lingers = fs.readFileSync(path.join(root, 'package/bquic-gateway/src/internal/relay/relay.go'), 'utf8').match(/lingerTimeout += +(\d+) \* time.Second/)[1];
	const killed = said('procd_set_param').find((l) => l.startsWith('term_timeout ')).split(' ')[1];
	assert.ok(Number(killed) > Number(lingers), `killed after ${killed} s, lingers ${lingers} s`);
	/* redirected packets need no rule; packets for transparent sockets have the mark set by the relay's own rules */
	assert.deepEqual(said('json_add_array'), []);
	const mark = fs.readFileSync(path.join(root, 'package/bquic-gateway/src/internal/divert/rules.go'), 'utf8').match(/FirewallMark += "([^"]+)"/)[1];
	for (const change of [ { mode: 'tproxy' }, { mode: 'redirect', udp_port: '53' } ]) {
		const strings = run('start_service', (s) => Object.assign(s.relay, change)).said('json_add_string');
		assert.deepEqual(strings, [ 'type rule', 'src *', 'proto all', 'target ACCEPT', `mark ${mark}` ]);
	}

	const signals = (change) => run('reload_service', (s) => Object.assign(s.relay, change), { RUNNING: 'relay' }).said('procd_send_signal');
	for (const change of [ {}, { exclude: '192.0.2.0/24' }, { interface: 'br-lan' }, { gateway: 'other.example:8443' } ])
		assert.deepEqual(signals(change), [ 'bquic-gateway relay HUP' ], JSON.stringify(change));
	for (const change of [ { status_socket: `${tmp}/r.sock` }, { metrics: '127.0.0.1:9465' } ])
		assert.deepEqual(signals(change), [], JSON.stringify(change));
	/* the manual names the others */
	const [ , restarts ] = fs.readFileSync(path.join(root, 'docs/install.md'), 'utf8').match(/restarts only for what cannot change in place:\n\n(.*?)\n\n/s);
	for (const [ option, value ] of Object.entries({ port: '12444', mode: 'tproxy', bridge: '0', connections: '2', state_dir: `${run.dir}/other` })) {
		assert.deepEqual(signals({ [option]: value }), [], option);
		assert.ok(restarts.includes(`\`${option}\``), option);
	}
});

test('what a killed relay has left goes when the service stops, and when the relay is off', () => {
	const calls = path.join(tmp, 'calls');
	const prog = path.join(tmp, 'bquic-called');
	fs.writeFileSync(prog, `#!/bin/sh\necho "$*" >>'${calls}'\ncase " $* " in *' --clean '*) ;; *) exec '${BQUIC}' "$@" ;; esac\n`, { mode: 0o755 });
	const cleaned = (fn, change, RUNNING) => {
		fs.writeFileSync(calls, '');
		const r = service(change, { TEST_PROG: prog })(fn, null, { RUNNING });
		assert.equal(r.status, 0, r.error);
		return fs.readFileSync(calls, 'utf8').split('\n').filter((l) => l.includes('--clean'));
	};

	assert.deepEqual(cleaned('service_stopped', onlyRelay, ''), [ 'openwrt relay --clean' ]);
	assert.deepEqual(cleaned('reload_service', () => null, ''), [ 'openwrt relay --clean' ]);
	/* a running daemon cleans up by itself when procd ends it */
	assert.deepEqual(cleaned('reload_service', () => null, 'relay'), []);
	assert.deepEqual(cleaned('reload_service', onlyRelay, 'relay'), []);
	assert.deepEqual(cleaned('start_service', onlyRelay, ''), []);
});

test('kernel settings: as docs/systemd has them, made with a start, restored by the removal and by no upgrade', () => {
	const namespace = `bquic-test-${process.pid}`;
	const ip = (...words) => {
		const r = spawnSync('ip', words, { encoding: 'utf8', env: { PATH: process.env.PATH } });
		assert.equal(r.status, 0, r.stderr);
		return r.stdout.trim();
	};
	const wants = fs.readFileSync(path.join(root, 'docs/systemd/50-bquic.conf'), 'utf8').match(/^[^#\n]+/gm);
	assert.equal(wants.length, 3);
	assert.deepEqual(service(onlyGateway)('start_service').said('sysctl'), wants.map((w) => `-qew ${w}`));
	assert.deepEqual(service(() => null)('start_service').said('sysctl'), []);
	/* larger buffers are the operator's, and stay */
	assert.deepEqual(service(onlyGateway, { TEST_SYSCTL: '16777216' })('start_service').said('sysctl'), [ '-qew net.ipv4.tcp_early_demux=0' ]);

	ip('netns', 'add', namespace);
	try {
		const value = () => ip('netns', 'exec', namespace, 'cat', '/proc/sys/net/ipv4/tcp_early_demux');
		const run = service(onlyRelay, { TEST_KERNEL: namespace });
		const makefile = fs.readFileSync(path.join(root, 'package/bquic-gateway/Makefile'), 'utf8');
		const postrm = makefile.match(/^define Package\/bquic-gateway\/postrm\n(.*?)^endef/ms)[1].replaceAll('$$', '$')
			.replaceAll('/var/etc/bquic/kernel', run.made('kernel')).replaceAll('"${IPKG_INSTROOT}/', `"${run.dir}/root/`);
		const removed = (how) => ip('netns', 'exec', namespace, 'busybox', 'sh', '-c', postrm, 'postrm', how);

		assert.equal(value(), '1');
		for (let i = 0; i < 2; i++) {
			const { status, error } = run('start_service');
			assert.deepEqual([ status, error ], [ 0, '' ]);
			assert.equal(value(), '0');
		}
		removed('upgrade');
		assert.equal(value(), '0');
		removed('remove');
		assert.equal(value(), '1');
	} finally {
		ip('netns', 'del', namespace);
	}
});

for (const [ name, pkg ] of [ [ 'bquic', 'bquic-gateway' ], [ 'wifirr', 'wifirr-sched' ] ]) test(`reload_config knows of ${name} that was installed after the start`, () => {
	const run = path.join(tmp, `defaults-${name}`), seen = path.join(run, 'config.md5');
	const sh = (...words) => {
		const r = spawnSync('busybox', [ 'sh', '-euc', ...words ], { encoding: 'utf8', env: { PATH: `${run}:${process.env.PATH}`, RUN: run } });
		assert.equal(r.status, 0, r.stderr);
		return r.stdout;
	};
	const defaults = () => sh(`sh ${path.join(root, `package/${pkg}/files/etc/uci-defaults/90-${pkg}`)}`);
	const uci = (value) => fs.writeFileSync(path.join(run, 'uci'), `#!/bin/sh\necho "$2.gateway.enabled='${value}'"\n`, { mode: 0o755 });
	/* like OpenWrt's reload_config: compares all files with their previous contents */
	const reload = () => {
		const out = sh('rm -rf "$RUN/config.check"; mkdir "$RUN/config.check"; uci show ' + name + ' >"$RUN/config.check/' + name + '"; md5sum -c "$RUN/config.md5" 2>/dev/null | grep FAILED | cut -d: -f1 || true; md5sum "$RUN"/config.check/* >"$RUN/config.md5"; rm -r "$RUN/config.check"');
		return out.split('\n').filter((l) => l).map((l) => path.basename(l));
	};

	fs.mkdirSync(run);
	uci('0');
	defaults(); /* the very first start: reload_config will see everything by itself */
	assert.ok(!fs.existsSync(seen));
	fs.writeFileSync(seen, '');
	defaults();
	assert.deepEqual(reload(), []);
	uci('1');
	assert.deepEqual(reload(), [ name ]);
	assert.deepEqual(reload(), []);
	/* removed with its file, installed again, and set to the same values again */
	uci('0');
	defaults();
	uci('1');
	assert.deepEqual(reload(), [ name ]);
});

test('on Gluon, a relay that nobody has set up has the devices and the mode that work there', () => {
	const run = path.join(tmp, 'gluon'), batch = path.join(run, 'batch');
	const changed = (relay, GLUON = run) => {
		fs.rmSync(batch, { force: true });
		fs.writeFileSync(path.join(run, 'uci'), `#!/bin/sh
[ "$1" != -q ] || shift
case "$*" in
${Object.entries(relay).map(([ option, value ]) => `"get bquic.relay.${option}") echo '${value}' ;;`).join('\n')}
batch) cat >'${batch}' ;;
*) exit 1 ;;
esac
`, { mode: 0o755 });
		const r = spawnSync('busybox', [ 'sh', '-u', path.join(root, 'package/bquic-gateway/files/etc/uci-defaults/90-bquic-gateway') ],
			{ encoding: 'utf8', env: { PATH: `${run}:${process.env.PATH}`, RUN: run, GLUON } });
		assert.deepEqual([ r.status, r.stderr ], [ 0, '' ]);
		return fs.existsSync(batch) ? fs.readFileSync(batch, 'utf8').trim().split('\n') : [];
	};

	fs.mkdirSync(run);
	const { enabled, mode, interface: device } = uciFile(path.join(root, 'files/etc/config/bquic')).relay;
	const relay = { enabled, mode, interface: [ device ].flat().join(' ') };
	assert.deepEqual(changed(relay), [ 'set bquic.relay.mode=tproxy', 'delete bquic.relay.interface', 'add_list bquic.relay.interface=br-client', 'commit bquic' ]);
	assert.deepEqual(changed(relay, '/nonexistent'), []);
	for (const own of [ { enabled: '1' }, { mode: 'tproxy' }, { interface: 'br-lan br-guest' } ])
		assert.deepEqual(changed({ ...relay, ...own }), [], JSON.stringify(own));
});

const hostile = [ '$(touch executed)', '`touch executed`', "'; touch executed; '", '"; touch executed; "', '<script>', '\\', '*', '&& touch executed' ];

/* the wifirr-sched script with the real daemon's check */
function scheduler(fn, options, env) {
	const run = path.join(tmp, 'run'), made = path.join(tmp, 'made');
	const r = init('wifirr-sched', fn, { a: { '.type': 'scheduler', enabled: '1', ...options } }, { TEST_PROG: WIFIRRD, TEST_RUN: run, TEST_DIR: made, ...env });
	const file = path.join(made, `${options.device}.options`);

	return { ...r, run, made, text: r.lines.map((l) => l.join(' ')), file: fs.existsSync(file) ? fs.readFileSync(file, 'utf8') : null };
}

test('wifirr-sched: every option reaches the daemon, and only as itself', () => {
	const all = {
		backend: 'htb', mode: 'paper', engage: 'always', active: '4', slot: '500', trickle: '30', rate: '1000', weights: '9,1', windows: 'off', rts: '500',
		demand_bytes: '1', demand_rate: '2', busy_threshold: '3', engage_delay: '4', match: 'ip'
	};
	const { lines, error, run, made, file } = scheduler('start_service', {
		device: 'lo', ...all, always: '192.0.2.1 2001:db8::1', ignore: '192.0.2.2', exempt_voice: '1', verbose: '2'
	});

	assert.deepEqual(command(lines), [ WIFIRRD, '--device', 'lo', '--control', `${run}/lo.sock`, '--options', `${made}/lo.options` ], error);
	assert.deepEqual(lines[0], [ 'procd_open_instance', 'lo' ]);
	assert.equal(file, Object.entries(all).map(([ o, v ]) => `${o.replace('_', '-')}=${v}\n`).join('') +
		'always=192.0.2.1\nalways=2001:db8::1\nignore=192.0.2.2\nexempt-voice\nverbose\nverbose\n');
	for (const value of [ ...hostile, '1,2\nverbose', '1,2;x', '1,2 3' ]) {
		fs.rmSync(path.join(made, 'lo.options'), { force: true });
		const r = scheduler('start_service', { device: 'lo', rate: '1000', weights: value });
		assert.ok(r.text.join('\n').includes(`section a: weights ${value}: must be`), r.text);
		assert.equal(r.file, null);
		scheduler('start_service', { device: value });
		const listed = scheduler('start_service', { device: 'lo', rate: '1000', always: value });
		assert.ok(listed.text.join('\n').includes(`section a: always ${value.split(/\s/)[0]}: not a MAC`), listed.text);
		assert.equal(listed.file, null);
	}
	assert.ok(!fs.existsSync(path.join(tmp, 'executed')));
});

test('wifirr-sched: an impossible value or a missing device starts nothing and says so', () => {
	for (const [ options, env, text ] of [
		[ { device: 'lo', slot: 'a.b c' }, { INVALID: 'slot' }, /section a: slot a\.b c: must be a whole number from 10 to 60000$/ ],
		[ { device: 'lo', slot: ' 16' }, {}, /section a: slot  16: must be a whole number from 10 to 60000$/ ],
		[ { device: 'lo', rate: '20M' }, { INVALID: 'rate' }, /section a: rate 20M: must be a whole number from 100 to 10000000$/ ],
		[ { device: 'lo', backend: 'wmm' }, { INVALID: 'backend' }, /section a: backend wmm: must be auto, airtime or htb$/ ],
		[ { device: 'lo', match: 'name' }, { INVALID: 'match' }, /section a: match name: must be mac or ip$/ ],
		[ { device: 'lo', rts: '2,5' }, { INVALID: 'rts' }, /section a: rts 2,5: must be auto, off or a whole number from 0 to 65535$/ ],
		[ { device: 'lo', exempt_voice: '2' }, { INVALID: 'exempt_voice' }, /section a: exempt_voice 2: must be 0 or 1$/ ],
		[ { device: 'the-name-of-an-ssid' }, { INVALID: 'device' }, /section a: device the-name-of-an-ssid: must have at most 15 characters$/ ],
		[ { device: 'lo', rate: '1000', slto: '700' }, {}, /section a: slto: unknown option$/ ],
		[ {}, {}, /section a: option device is missing/ ],
		/* it would end after every start */
		[ { device: 'lo' }, {}, /section a: rate: must be given: lo reports no link rate/ ],
		[ { device: 'lo', weights: '70000,1' }, {}, /section a: weights 70000: must be a whole number from 1 to 65535/ ],
		[ { device: 'lo', rate: '1000', always: 'printer 02:00:00:00:00:01' }, {}, /section a: always printer: not a MAC, IPv4 or IPv6 address/ ],
		[ { device: 'lo', rate: '1000', ignore: '10.0.0.0/24 10.0.0.1' }, {}, /section a: ignore 10.0.0.0\/24: not a MAC, IPv4 or IPv6 address/ ],
		[ { device: 'lo', rate: '1000', trickle: '1000' }, {}, /section a: .*trickle 1000: must be below --rate 1000/ ],
		[ { device: 'radio0' }, {}, /section a: waiting for device radio0, which does not exist$/ ]
	]) {
		/* and a reload stops nothing, unless only the device is missing */
		for (const fn of [ 'start_service', 'reload_service' ]) {
			const r = scheduler(fn, options, env);
			assert.equal(r.lines.length, 1, r.text);
			assert.match(r.text[0], text);
			assert.doesNotMatch(r.error, /validates as/); /* nothing of the options that are right */
			if (fn == 'reload_service')
				assert.equal(r.status, text.source.includes('waiting') ? 0 : 1);
		}
	}
});

test('wifirr-sched: a section that nobody would read is named', () => {
	const dirs = { TEST_PROG: WIFIRRD, TEST_RUN: path.join(tmp, 'run-unread'), TEST_DIR: path.join(tmp, 'made-unread') };
	const a = { '.type': 'scheduler', enabled: '1', device: 'lo', rate: '1000' };

	for (const [ b, text ] of [
		[ { ...a, '.type': 'schedular', device: 'b0' }, /section b: unknown section type schedular: must be scheduler/ ],
		[ { ...a, rate: '2000' }, /section b: device lo: another section has it, too/ ]
	]) {
		for (const fn of [ 'start', 'reload_service', 'check' ]) {
			const { lines, status } = init('wifirr-sched', fn, { a, b }, dirs);
			const said = lines.filter((l) => fn == 'check' || l[0] == 'log');
			assert.equal(said.length, 1, JSON.stringify(lines));
			assert.match(said[0].join(' '), text);
			assert.deepEqual(lines.filter((l) => l[0] == 'procd_open_instance'), fn == 'check' ? [] : [ [ 'procd_open_instance', 'lo' ] ]);
			assert.ok(fn == 'start' || status == 1);
		}
		assert.equal(fs.readFileSync(path.join(dirs.TEST_DIR, 'lo.options'), 'utf8'), 'rate=1000\n');
	}
});

test('wifirr-sched: a section without a name, as LuCI makes them, is known by its device', () => {
	const section = { '.type': 'scheduler', enabled: '1', device: 'lo', slot: '5' };
	const { lines } = init('wifirr-sched', 'check', { cfg033579: section }, { INVALID: 'slot', TEST_PROG: WIFIRRD, TEST_RUN: path.join(tmp, 'run'), TEST_DIR: path.join(tmp, 'made') });

	assert.deepEqual(lines, [ [ '/etc/config/wifirr: section cfg033579 (device lo): slot 5: must be a whole number from 10 to 60000' ] ]);
});

test('wifirr-sched: a file that uci cannot read, or a section of another type, ends no running daemon and is named', () => {
	const options = { device: 'lo', rate: '1000' };
	const said = 'Parse error (invalid command) at line 3, byte 1';
	for (const [ type, env, text ] of [
		[ 'scheduler', { UNREADABLE: said }, `/etc/config/wifirr: ${said}` ],
		[ 'schedular', {}, '/etc/config/wifirr: section a: unknown section type schedular: must be scheduler' ]
	]) {
		assert.equal(scheduler('start', options).status, 0);
		for (const fn of [ 'check', 'reload_service', 'start' ]) {
			const r = scheduler(fn, { ...options, '.type': type }, { RUNNING: 'lo', ...env });
			assert.ok(r.text.every((l) => !/^procd/.test(l)), r.text);
			assert.ok(r.text.length == 1 && r.text[0].endsWith(text), r.text);
			assert.equal(r.file, 'rate=1000\n');
			assert.equal(r.status, 1);
			assert.equal(r.method, fn == 'check' ? undefined : 'add');
		}
	}
});

test('wifirr-sched: what the file switches off ends also beside a mistake, which leaves only its own scheduler as it is', () => {
	const dirs = { TEST_PROG: WIFIRRD, TEST_RUN: path.join(tmp, 'run-off'), TEST_DIR: path.join(tmp, 'made-off') };
	const on = (device, options) => ({ '.type': 'scheduler', enabled: '1', device, rate: '1000', ...options });
	const b0 = on('b0', { slto: '700' });

	for (const [ sections, ended ] of [
		[ { a: on('lo', { enabled: '0' }), b: b0 }, [ 'lo' ] ],
		[ { a: on('lo', { enabled: '0', slto: '700' }), b: b0 }, [ 'lo' ] ],
		[ { b: b0 }, [ 'lo' ] ],
		[ { a: on('lo', { slot: '700' }), b: b0 }, [] ],
		/* whose it is, nobody knows */
		[ { b: { ...b0, device: '' } }, [] ]
	]) {
		for (const fn of [ 'reload_service', 'start' ]) {
			fs.rmSync(dirs.TEST_DIR, { recursive: true, force: true });
			init('wifirr-sched', 'start', { a: on('lo') }, dirs);
			fs.copyFileSync(path.join(dirs.TEST_DIR, 'lo.options'), path.join(dirs.TEST_DIR, 'b0.options'));
			const { lines, method, status } = init('wifirr-sched', fn, sections, { ...dirs, RUNNING: 'lo b0' });
			const what = JSON.stringify([ fn, sections, lines ]);
			assert.equal(method, 'add', what);
			assert.deepEqual(lines.filter((l) => l[0] == 'procd_kill'), ended.map((d) => [ 'procd_kill', 'wifirr-sched', d ]), what);
			/* a daemon that crashes needs its options to start again */
			assert.deepEqual(fs.readdirSync(dirs.TEST_DIR).filter((f) => f.endsWith('.options')), [ 'b0.options', 'lo.options' ].filter((f) => !ended.includes(f.split('.')[0])), what);
			assert.equal(fs.readFileSync(path.join(dirs.TEST_DIR, 'b0.options'), 'utf8'), 'rate=1000\n');
			if (!ended.length && sections.a)
				assert.equal(fs.readFileSync(path.join(dirs.TEST_DIR, 'lo.options'), 'utf8'), 'slot=700\nrate=1000\n');
			assert.equal(lines.filter((l) => l[0] == 'log').length, sections.a?.slto ? 2 : 1, what);
			assert.ok(fn == 'start' || status == 1, what);
		}
	}
});

test('wifirr-sched: a reload tells the running daemon, and only that', () => {
	const options = { device: 'lo', rate: '1000', slot: '700' };
	scheduler('start_service', options);
	for (const [ RUNNING, wants ] of [ [ 'lo', [ 'procd_send_signal wifirr-sched lo HUP' ] ], [ '', [] ], [ 'other', [] ] ]) {
		const { text, lines } = scheduler('reload_service', options, { RUNNING });
		assert.deepEqual(text.filter((l) => l.startsWith('procd_send_signal')), wants);
		assert.deepEqual(lines[0], [ 'procd_open_instance', 'lo' ]);
	}
});

test('wifirr-sched: a daemon that waits for its device goes on waiting', () => {
	/* "wifi reload" makes interfaces one by one, and each makes the service reload */
	const options = { device: 'nosuchdev0', rate: '1000' };
	scheduler('start_service', options);
	const { text, file } = scheduler('reload_service', options, { RUNNING: 'nosuchdev0' });
	assert.ok(text.includes('procd_open_instance nosuchdev0'), text);
	assert.deepEqual(text.filter((l) => l.startsWith('procd_send_signal')), [ 'procd_send_signal wifirr-sched nosuchdev0 HUP' ]);
	assert.equal(file, 'rate=1000\n');
});

test('wifirr-sched: a daemon that reads its options meanwhile has all of them', () => {
	const options = { device: 'lo', rate: '1000', slot: '700' };
	scheduler('start_service', options);
	const before = fs.openSync(path.join(tmp, 'made/lo.options'), 'r');
	assert.equal(scheduler('reload_service', { ...options, slot: '800' }).file, 'slot=800\nrate=1000\n');
	assert.equal(fs.readFileSync(before, 'utf8'), 'slot=700\nrate=1000\n');
	fs.closeSync(before);
	assert.deepEqual(fs.readdirSync(path.join(tmp, 'made')).filter((f) => f.startsWith('lo.')), [ 'lo.options' ]);
});

test('wifirr-sched: a radio has one scheduler, also while there is a mistake in its section', () => {
	const started = (RUNNING, options) => {
		const r = spawnSync('unshare', [ '-m', 'sh', '-ec', `mount -t tmpfs none /sys; mkdir -p /sys/phy0 /sys/class/net/ap0 /sys/class/net/ap1
			for d in ap0 ap1; do ln -s ../../../phy0 /sys/class/net/$d/phy80211; done; exec busybox sh -u "$@"`, 'sh',
		path.join(__dirname, 'rc.sh'), path.join(root, 'package/wifirr-sched/files/etc/init.d/wifirr-sched'), 'start' ], {
			encoding: 'utf8', env: { PATH: process.env.PATH, SECTIONS: 'scheduler/a scheduler/b', O_a_enabled: '1', O_a_device: 'ap0', O_b_enabled: '1', O_b_device: 'ap1',
				TEST_PROG: WIFIRRD, TEST_RUN: path.join(tmp, 'run-radio'), TEST_DIR: path.join(tmp, 'made-radio'), RUNNING, ...options } });
		said = r.stdout;
		return [ ...r.stdout.matchAll(/^procd_(?:open_instance|close_service)\|(.*)$/gm) ].map((m) => m[1]);
	};
	let said;

	/* the one that runs goes on; where none runs, the other takes the radio */
	assert.deepEqual(started('ap0', { O_a_slot: '5' }), [ 'add' ]);
	assert.deepEqual(started('', { O_a_slot: '5' }), [ 'ap1', 'add' ]);
	/* each device has one of htb; htb and another backend on one radio would take turns to end */
	assert.deepEqual(started('', { O_a_backend: 'htb', O_b_backend: 'htb' }), [ 'ap0', 'ap1', 'set' ]);
	assert.deepEqual(started('', { O_a_backend: 'htb' }), [ 'ap0', 'set' ]);
	assert.match(said, /section b: device ap1 has no daemon of its own: a wiphy has one, here that of ap0, which serves no other device: backend htb is for all sections of a wiphy/);
	for (const O_b_backend of [ '', 'auto', 'airtime', 'htb' ]) {
		assert.deepEqual(started('', { O_b_backend }), [ 'ap0', 'set' ]);
		/* which may have several radios, of which the daemon serves one */
		assert.match(said, /section b: device ap1 has no daemon of its own: a wiphy has one, here that of ap0, which serves all access points of its radio$/m);
	}
});

test('wifirr-sched: where /var is full, a running daemon keeps all of its options', () => {
	const TEST_DIR = path.join(tmp, 'full'), options = { device: 'lo', rate: '1000', engage: 'dry-run' };
	const file = () => fs.readFileSync(path.join(TEST_DIR, 'lo.options'), 'utf8');

	fs.mkdirSync(TEST_DIR);
	/* two pages: the program's mark and the options */
	assert.equal(spawnSync('mount', [ '-t', 'tmpfs', '-o', 'size=8k', 'none', TEST_DIR ]).status, 0);
	try {
		assert.equal(scheduler('start', options, { TEST_DIR }).status, 0);
		const before = file();
		const mark = fs.readFileSync(path.join(TEST_DIR, 'program'), 'utf8');
		assert.match(before, /^engage=dry-run$/m);
		const r = scheduler('reload_service', options, { TEST_DIR, RUNNING: 'lo' });
		assert.equal(r.status, 1, r.text);
		assert.match(r.text.join('\n'), /section a: no room in /);
		assert.equal(scheduler('start', options, { TEST_DIR, RUNNING: 'lo' }).method, 'add');
		assert.deepEqual([ file(), fs.readFileSync(path.join(TEST_DIR, 'program'), 'utf8') ], [ before, mark ]);
	} finally {
		spawnSync('umount', [ TEST_DIR ]);
	}
});

test('wifirr-sched: apk starts it after an upgrade without a stop, and the new program runs', () => {
	const options = { device: 'lo', rate: '1000' }, newer = path.join(tmp, 'wifirrd-newer');
	const start = (PROG) => scheduler('start', options, { RUNNING: 'lo', TEST_PROG: PROG });
	const file = (r) => r.text.filter((l) => l.startsWith('procd_set_param file'));

	fs.writeFileSync(newer, `#!/bin/sh\nexec '${WIFIRRD}' "$@"\n`, { mode: 0o755 });
	start(WIFIRRD);
	const before = fs.readFileSync(path.join(tmp, 'made/program'), 'utf8');
	const r = start(newer);
	/* procd restarts an instance when such a file has changed; then it must not be told to reload */
	assert.deepEqual(file(r), [ `procd_set_param file ${tmp}/made/program` ]);
	assert.notEqual(fs.readFileSync(path.join(tmp, 'made/program'), 'utf8'), before);
	assert.deepEqual(r.text.filter((l) => l.startsWith('procd_send_signal')), []);
	assert.equal(start(newer).text.filter((l) => l.startsWith('procd_send_signal')).length, 1);
	/* never given up */
	assert.ok(r.text.includes('procd_set_param respawn 3600 5 0'));
});

test('wifirr-sched: what killed daemons have set goes with the service, and with their section', () => {
	const made = path.join(tmp, 'made'), calls = path.join(tmp, 'wifirr-calls'), prog = path.join(tmp, 'wifirrd-called');
	fs.writeFileSync(prog, `#!/bin/sh\ncase "$*" in restore) echo "$*" >>'${calls}'; echo complaint >&2 ;; *) exec '${WIFIRRD}' "$@" ;; esac\n`, { mode: 0o755 });
	const restored = (fn, options) => {
		fs.rmSync(calls, { force: true });
		const r = scheduler(fn, { device: 'lo', rate: '1000', ...options }, { TEST_PROG: prog });
		assert.equal(r.error, '');
		assert.equal(fs.readFileSync(calls, 'utf8'), 'restore\n');
		assert.deepEqual(r.text.filter((l) => l.startsWith('log')), [ 'log complaint' ]);
		return fs.readdirSync(made).filter((f) => f.endsWith('.options'));
	};

	for (const file of fs.readdirSync(made))
		fs.rmSync(path.join(made, file));
	fs.writeFileSync(path.join(made, 'gone0.options'), 'rate=7000\n');
	assert.deepEqual(restored('start'), [ 'lo.options' ]);
	assert.deepEqual(restored('reload_service', { enabled: '0' }), []);
	fs.writeFileSync(path.join(made, 'lo.options'), 'rate=7000\n');
	restored('start');
	/* another one's stop: of this one, its file is needed when it is started again after a crash */
	assert.deepEqual(restored('stop another'), [ 'lo.options' ]);
	assert.deepEqual(restored('stop'), []);
});

test('wifirr-sched: root writes to nothing that the daemon could have planted', () => {
	const victim = path.join(tmp, 'precious'), run = path.join(tmp, 'run-planted');
	fs.writeFileSync(victim, 'precious');
	fs.mkdirSync(run);
	for (const name of [ 'lo.options', 'program', 'gone0.options' ])
		fs.symlinkSync(victim, path.join(run, name));
	/* the number in the name is the shell's process */
	fs.writeFileSync(path.join(tmp, 'planting'), `#!/bin/sh\nln -s '${victim}' '${run}/check.'$$\nexec busybox sh -u "$@"\n`, { mode: 0o755 });
	for (const fn of [ 'check', 'start', 'reload_service', 'stop' ]) {
		const r = spawnSync(path.join(tmp, 'planting'), [ path.join(__dirname, 'rc.sh'), path.join(root, 'package/wifirr-sched/files/etc/init.d/wifirr-sched'), fn ], {
			encoding: 'utf8', env: { PATH: process.env.PATH, SECTIONS: 'scheduler/a', O_a_enabled: '1', O_a_device: 'lo', O_a_rate: '1000',
				TEST_PROG: WIFIRRD, TEST_RUN: run, TEST_DIR: path.join(tmp, 'made-planted') } });
		assert.equal(r.status, 0, r.stderr);
		assert.equal(fs.readFileSync(victim, 'utf8'), 'precious', fn);
	}
	assert.equal(fs.readdirSync(run).length, 7);
});

test('wifirr-sched: what a daemon of root has left is no obstacle for one without root\'s rights', () => {
	const run = path.join(tmp, 'run'), victim = path.join(tmp, 'precious');
	fs.writeFileSync(path.join(run, 'phy0'), '', { mode: 0o600 });
	fs.writeFileSync(path.join(run, 'lo.sock'), '', { mode: 0o600 });
	fs.symlinkSync(victim, path.join(run, 'phy1'));
	assert.equal(scheduler('start_service', { device: 'lo', rate: '1000' }, { TEST_USER: user }).error, '');
	for (const name of [ '', 'phy0', 'lo.sock' ])
		assert.equal(fs.statSync(path.join(run, name)).uid, user, name);
	assert.equal(fs.statSync(run).mode & 0o777, 0o750);
	assert.equal(fs.statSync(victim).uid, 0);
	for (const name of [ 'phy0', 'phy1', 'lo.sock' ])
		fs.rmSync(path.join(run, name));
	assert.equal(scheduler('start_service', { device: 'lo', rate: '1000' }, { TEST_USER: user }).error, '');
});

test('wifirr-sched: a device that appears, also by a new name, gets its scheduler', () => {
	const plugged = (ACTION, INTERFACE, services = { 'wifirr-sched': {} }) => hotplug('wifirr-sched/files/etc/hotplug.d/net/50-wifirr-sched', services,
		"wifirr.ap0=scheduler\nwifirr.ap0.device='phy0-ap1'", { ACTION, INTERFACE });

	for (const action of [ 'add', 'move' ])
		assert.equal(plugged(action, 'phy0-ap1'), 'wifirr-sched start\n', action);
	for (const [ action, device ] of [ [ 'remove', 'phy0-ap1' ], [ 'add', 'phy0-ap' ], [ 'add', 'phy0-ap11' ] ])
		assert.equal(plugged(action, device), '', `${action} ${device}`);
	/* a start starts what has no mistake */
	const { method, lines } = init('wifirr-sched', 'start', { a: { '.type': 'scheduler', enabled: '1', device: 'lo', rate: '1000' }, b: { '.type': 'scheduler', enabled: '1', device: 'b0', weights: 'x' } },
		{ TEST_PROG: WIFIRRD, TEST_RUN: path.join(tmp, 'run'), TEST_DIR: path.join(tmp, 'made') });
	assert.equal(method, 'add');
	assert.deepEqual(lines.filter((l) => l[0] == 'procd_open_instance'), [ [ 'procd_open_instance', 'lo' ] ]);
	/* procd knows no service that was stopped */
	assert.equal(plugged('add', 'phy0-ap1', {}), '');
});

function call(words, env) {
	return spawnSync('busybox', [ 'sh', '-u', plugin, ...words ], { encoding: 'utf8', input: '{}', env: { PATH: process.env.PATH, WIFIRRD, ...env } });
}

test('rpcd plugin wifirr: nothing runs, unknown methods', () => {
	const RUN = path.join(tmp, 'none');

	for (const method of Object.keys(JSON.parse(call([ 'list' ], { RUN }).stdout)).filter((m) => m != 'check'))
		assert.deepEqual(JSON.parse(call([ 'call', method ], { RUN }).stdout), { schedulers: [] });
	for (const words of [ [], [ 'call' ], [ 'call', '$(touch executed)' ], [ 'call', 'metrics' ] ])
		assert.notEqual(call(words, { RUN }).status, 0);
	fs.mkdirSync(RUN, { recursive: true });
	fs.writeFileSync(path.join(RUN, 'file.sock'), '');
	assert.deepEqual(JSON.parse(call([ 'call', 'status' ], { RUN }).stdout), { schedulers: [] });
});

test('rpcd plugin wifirr: what the init script would refuse, without a word to the log', () => {
	const INIT = path.join(tmp, 'init-check');
	const mistakes = (options, env) => {
		const variables = Object.fromEntries(Object.entries({ enabled: '1', ...options }).map(([ o, v ]) => [ `O_a_${o}`, v ]));
		fs.writeFileSync(INIT, `#!/bin/sh\nexec busybox sh -u '${path.join(__dirname, 'rc.sh')}' '${path.join(root, 'package/wifirr-sched/files/etc/init.d/wifirr-sched')}' "$1"\n`, { mode: 0o755 });
		const r = call([ 'call', 'check' ], { INIT, SECTIONS: 'scheduler/a', TEST_PROG: WIFIRRD, TEST_RUN: path.join(tmp, 'run-check'), TEST_DIR: path.join(tmp, 'made-check'), ...variables, ...env });
		assert.equal(r.status, 0, r.stderr);
		return JSON.parse(r.stdout).mistakes;
	};

	assert.deepEqual(mistakes({ device: 'lo', rate: '1000' }), []);
	assert.deepEqual(mistakes({ device: 'nosuchdev0', rate: '1000' }), []); /* the device may appear later */
	assert.deepEqual(mistakes({ device: 'lo' }), [ '/etc/config/wifirr: section a: rate: must be given: lo reports no link rate' ]);
	assert.deepEqual(mistakes({ device: 'lo', rate: '1000', slot: '9' }, { INVALID: 'slot' }), [ '/etc/config/wifirr: section a: slot 9: must be a whole number from 10 to 60000' ]);
	for (const value of [ ...hostile, '"\\\t\u0001x' ])
		assert.equal(mistakes({ device: 'lo', rate: '1000', weights: value }).length, 1, value);
	assert.ok(!fs.existsSync(path.join(tmp, 'executed')));
	for (const dir of [ 'run-check', 'made-check' ])
		assert.deepEqual(fs.readdirSync(path.join(tmp, dir)), []);
});

test('rpcd plugin wifirr: two real schedulers', () => {
	const RUN = path.join(tmp, 'sched');

	fs.mkdirSync(RUN);
	/* in a network namespace of its own, which ends with the shell */
	const r = spawnSync('unshare', [ '-n', 'sh', '-ec', `
		for d in ap0 ap1.2; do
			ip link add "$d" type veth
			ip link set "$d" up
			"$WIFIRRD" --device "$d" --backend htb --rate 20000 --control "$RUN/$d.sock" >&2 &
			pids="\${pids:-} $!"
		done
		trap 'kill $pids; wait' EXIT
		n=0
		# a socket is there before it answers
		until "$WIFIRRD" --control "$RUN/ap0.sock" status && "$WIFIRRD" --control "$RUN/ap1.2.sock" status; do
			n=$((n + 1)); [ $n -lt 1200 ] || exit 1
			sleep 0.05
		done >/dev/null 2>&1
		for m in status clients history pause status resume; do
			busybox sh -u "$PLUGIN" call $m </dev/null
		done
		for device in ap1.2 'ap1*' ''; do
			echo "{\\"device\\":\\"$device\\"}" | busybox sh -u "$PLUGIN" call pause
			busybox sh -u "$PLUGIN" call status </dev/null
		done` ], { encoding: 'utf8', env: { PATH: process.env.PATH, RUN, WIFIRRD, PLUGIN: plugin } });
	assert.equal(r.status, 0, r.stderr);
	const [ status, clients, history, pause, paused, resume, one, onePaused, none, nonePaused, all, allPaused ] = r.stdout.trim().split('}\n{').map((t, i, all) => JSON.parse((i ? '{' : '') + t + (i < all.length - 1 ? '}' : '')));

	assert.deepEqual(status.schedulers.map((s) => s.device), [ 'ap0', 'ap1.2' ]);
	assert.deepEqual(clients.schedulers.map((s) => [ s.device, s.clients.length ]), [ [ 'ap0', 0 ], [ 'ap1.2', 0 ] ]);
	assert.deepEqual(history.schedulers, [ 'ap0', 'ap1.2' ].map((device) => ({ device, every_s: 60, clients_with_demand: [], clients_served: [], busy_permille: [], wasted_estimate_permille: [] })));
	assert.deepEqual(pause.schedulers, [ { paused: true }, { paused: true } ]);
	assert.deepEqual(paused.schedulers.map((s) => s.paused), [ true, true ]);
	assert.deepEqual(resume.schedulers, [ { paused: false }, { paused: false } ]);
	/* of one radio; a name that no scheduler has is not taken for all of them */
	assert.deepEqual([ one, none, all ].map((a) => a.schedulers.length), [ 1, 0, 2 ]);
	assert.deepEqual([ onePaused, nonePaused, allPaused ].map((a) => a.schedulers.map((s) => s.paused)), [ [ false, true ], [ false, true ], [ true, true ] ]);
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
	list host 'localhost'
	option root '${tmp}'
`);
	assert.equal(call('check', {}).ok, true);
	fs.writeFileSync(path.join(tmp, 'file'), 'x'.repeat(100000));
	const r = spawnSync('unshare', [ '-n', 'sh', '-ec', `
		ip link set lo up
		"$BQUIC" gateway --config g >/dev/null 2>&1 &
		trap "kill $!; wait" EXIT
		n=0
		until "$BQUIC" status --socket g.sock >/dev/null 2>&1; do
			n=$((n + 1)); [ $n -lt 1200 ] || exit 1
			sleep 0.05
		done
		pin=$("$BQUIC" status --json --socket g.sock | sed -n 's/.*"pin": "\\(.*\\)".*/\\1/p')
		echo '{"url":"https://localhost:18443/file","pin":"'"$pin"'","profile":"bquic"}' | "$BQUIC" rpcd call fetch --config g
		echo '{"url":"https://localhost:18443/file","ca":"gstate/cert.pem"}' | "$BQUIC" rpcd call fetch --config g
		"$BQUIC" rpcd call status --config g </dev/null
		echo '{"url":"https://localhost:18443/file","pin":"sha256/AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="}' | "$BQUIC" rpcd call fetch --config g
		echo "{\\"pin\\":\\"$pin\\"}"` ], { encoding: 'utf8', cwd: tmp, env: { PATH: process.env.PATH, BQUIC, HOME: tmp } });
	assert.equal(r.status, 0, r.stderr);
	const [ fetched, trusted, status, wrong, { pin } ] = r.stdout.trim().split('\n').map((l) => JSON.parse(l));

	for (const answer of [ fetched, trusted ])
		assert.equal(answer.result?.bytes, 100000, JSON.stringify(answer));
	assert.equal(status.gateway.role, 'gateway');
	assert.equal(status.gateway.connections, undefined);
	assert.equal(typeof status.gateway.live.packets_sent, 'number');
	assert.equal(status.relay, null);
	/* the relay's page looks for the key in these words, to try another of its pins */
	const words = fs.readFileSync(path.join(root, 'luci-app-bquic/htdocs/luci-static/resources/bquic/fields.js'), 'utf8').match(/match\(\/(wrong pin: .*)\/\)/)[1];
	assert.equal(wrong.error.match(new RegExp(words))?.[1], pin, JSON.stringify(wrong));
});
