// SPDX-License-Identifier: Apache-2.0
'use strict';
// Compares the app's data with each other and with the daemons, without a browser.

const assert = require('node:assert/strict');
const fs = require('node:fs');
const path = require('node:path');
const { spawnSync } = require('node:child_process');
const test = require('node:test');

const luci = require('./luci.js');
const po = require('./po.js');

const root = path.resolve(po.app, '..');
const tmp = process.env.TEST_TMP;
const bquic = process.env.BQUIC, wifirrd = process.env.WIFIRRD;

const json = (file) => JSON.parse(fs.readFileSync(path.join(po.app, file), 'utf8'));
const source = (file) => fs.readFileSync(path.join(root, file), 'utf8');
const run = (command, args, options) => spawnSync(command, args, { encoding: 'utf8', ...options });
const menu = json('root/usr/share/luci/menu.d/luci-app-bquic.json');
const acl = json('root/usr/share/rpcd/acl.d/luci-app-bquic.json');

/* The methods that the plugins themselves list. */
function methods() {
	const list = (...command) => Object.keys(JSON.parse(run(command[0], command.slice(1)).stdout));

	return {
		bquic: list(bquic, 'rpcd', 'list'),
		wifirr: list('busybox', 'sh', path.join(root, 'package/wifirr-sched/files/usr/libexec/rpcd/wifirr'), 'list')
	};
}

/* [ { object, method } ] of all rpc.declare() */
function calls() {
	const found = [];

	for (const file of po.files('htdocs', '.js'))
		po.walk(po.parse(file), (node) => {
			if (node.type == 'CallExpression' && node.callee.property?.name == 'declare')
				found.push(Object.fromEntries(node.arguments[0].properties.map((p) => [ p.key.name, p.value.value ])));
		});

	return found;
}

/* { "config.type": [ option ] } of a view's forms */
async function options(view, config) {
	const env = luci((name) => fs.readFileSync(path.join(po.app, 'htdocs/luci-static/resources', name), 'utf8'), {
		'bquic.profiles': JSON.parse(run(bquic, [ 'rpcd', 'call', 'profiles', '--config', '/dev/null' ], { input: '{}' }).stdout),
		'bquic.status': {}
	}, { [config]: { x: { '.type': 'profile', '.name': 'x' } } });
	const v = env.load(`view.bquic.${view}`);

	v.state = env.load('bquic.common').form = () => ({}); /* the page around the form needs a browser */
	await v.render(await v.load());

	return env.sections;
}

const shown = (sections, type) => sections.find((s) => s.type == type).options.filter((o) => !o.name.startsWith('_'));
const names = (list) => list.map((o) => o.name).sort();

test('every page of the menu exists and every view is in the menu', () => {
	const views = Object.values(menu).filter((m) => m.action.type == 'view').map((m) => m.action.path).sort();

	assert.deepEqual(views, po.files('htdocs/luci-static/resources/view', '.js')
		.map((f) => f.replace(/.*\/view\//, '').replace(/\.js$/, '')).sort());
	for (const entry of Object.values(menu))
		for (const name of entry.depends?.acl ?? [])
			assert.ok(acl[name], name);
	for (const entry of Object.values(menu).filter((m) => m.action.type == 'alias'))
		assert.ok(menu[entry.action.path], entry.action.path);
});

test('the ACL grants what the plugins have and the pages call, reading apart from writing', () => {
	const { read, write } = acl['luci-app-bquic'];
	const known = methods();
	const writing = { bquic: [ 'fetch' ], wifirr: [ 'pause', 'resume' ] };

	for (const object of [ 'bquic', 'wifirr' ]) {
		assert.deepEqual(write.ubus[object].slice().sort(), writing[object]);
		for (const method of [ ...read.ubus[object], ...write.ubus[object] ])
			assert.ok(known[object].includes(method), `${object} has no ${method}`);
		for (const method of read.ubus[object])
			assert.ok(!writing[object].includes(method));
	}
	/* rpcd lets commit change only writable files */
	assert.deepEqual(write.ubus.uci, [ 'commit' ]);
	assert.ok(calls().length >= 8);
	for (const { object, method } of calls())
		assert.ok([ ...read.ubus[object] ?? [], ...write.ubus[object] ?? [] ].includes(method), `${object}.${method}`);
	for (const [ object, list ] of Object.entries({ ...read.ubus, ...write.ubus }))
		for (const method of list)
			assert.ok(calls().some((c) => c.object == object && c.method == method), `${object}.${method} is granted and not called`);
});

test('who may only read gets no secret: no token, no WiFi key', () => {
	const { read } = acl['luci-app-bquic'];

	assert.deepEqual(read.uci, [ 'wifirr' ]);
	assert.equal(read.ubus.uci, undefined);
	assert.equal(read.ubus['network.wireless'], undefined);
	/* the daemons' lines of the log, as LuCI's own page of it shows them to the same people; and no other command */
	assert.deepEqual(read.file, { '/sbin/logread -e bquic\\|wifirr': [ 'exec' ], '/sbin/logread -l 1000 -e bquic\\|wifirr': [ 'exec' ] });
	assert.deepEqual(read.ubus.file, [ 'exec' ]);
	const commands = source('luci-app-bquic/htdocs/luci-static/resources/view/bquic/log.js').match(/^const COMMANDS = (.*);$/m)[1];
	assert.deepEqual(JSON.parse(commands.replace(/'/g, '"')).map((words) => [ '/sbin/logread', ...words ].join(' ')), Object.keys(read.file));
});

test('every field has a name and says in a sentence or two what it does', async () => {
	const sections = [ ...await options('gateway', 'bquic'), ...await options('relay', 'bquic'), ...await options('scheduler', 'wifirr') ];
	let fields = 0;

	for (const s of sections)
		for (const o of s.options) {
			assert.match(o.title ?? '', /./, `${s.type}.${o.name}`);
			assert.match(o.description ?? '', /^[^a-z].*\.$/, `${s.type}.${o.name}`);
			fields++;
		}
	assert.ok(fields > 100, `${fields} fields`);
});

/* All options in one file: bquic check names those that it does not know. */
function unknown(type, list) {
	const file = path.join(tmp, `options-${type}`);

	fs.writeFileSync(file, `config ${type} 'x'\n` + list.map((o) => `\toption ${o} 'x'\n`).join(''));
	const lines = run(bquic, [ 'check', file ]).stderr.split('\n').filter((l) => l.includes('unknown option'));

	return list.filter((o) => lines.some((l) => l.includes(`.${o}: unknown`)));
}

/* The options of a section type in the schema, in Go. */
function schema(type) {
	const text = source('package/bquic-gateway/src/internal/config/schema.go');
	const part = text.split(/^\t\tType: +"/m).find((p) => p.startsWith(`${type}"`));
	let list = [ ...part.matchAll(/\{Name: "(\w+)"/g) ].map((m) => m[1]);

	if (type == 'profile')
		list = [ 'base', ...[ ...source('package/bquic-gateway/src/internal/profile/params.go').matchAll(/Name: "(\w+)"/g) ].map((m) => m[1]) ];
	assert.ok(list.length >= 3, `options of ${type} not found in schema.go`);
	assert.deepEqual(unknown(type, [ ...list, 'no_such_option' ]), [ 'no_such_option' ]);

	return list.sort();
}

test('forms and bquic check know the same options', async () => {
	const gateway = await options('gateway', 'bquic'), relay = await options('relay', 'bquic');

	for (const [ sections, type ] of [ [ gateway, 'gateway' ], [ gateway, 'site' ], [ gateway, 'peer' ], [ gateway, 'profile' ], [ relay, 'relay' ], [ relay, 'upstream' ], [ relay, 'profile' ] ])
		assert.deepEqual(names(shown(sections, type)), schema(type), type);
});

/* Whether bquic check complains of the option, with this text. */
function wrong(type, option, value, text = '') {
	const file = path.join(tmp, 'wrong');

	fs.writeFileSync(file, `config ${type} 'x'\n\toption ${option} '${value}'\n`);
	return run(bquic, [ 'check', file ]).stderr.split('\n').some((l) => l.includes(`.${option}: `) && l.includes(text));
}

test('bounds of forms and of bquic check are the same', async () => {
	const gateway = await options('gateway', 'bquic'), relay = await options('relay', 'bquic');
	let bounds = 0;

	for (const [ sections, type ] of [ [ gateway, 'profile' ], [ gateway, 'peer' ], [ relay, 'relay' ], [ relay, 'upstream' ] ]) {
		for (const o of shown(sections, type)) {
			const m = String(o.datatype).match(/range\((\d+),(\d+)\)/);
			if (m) {
				bounds++;
				for (const [ value, bad ] of [ [ +m[1], false ], [ +m[2], false ], [ m[1] - 1, true ], [ +m[2] + 1, true ] ])
					assert.equal(wrong(type, o.name, value), bad, `${type}.${o.name} ${value}`);
			}
			for (const value of o.kind == 'ListValue' && !/profile|base/.test(o.name) ? o.values.filter((v) => v) : [])
				assert.equal(wrong(type, o.name, value), false, `${type}.${o.name} ${value}`);
		}
	}
	assert.ok(bounds >= 10);
});

test('forms take the addresses that bquic check takes', async () => {
	const gateway = shown(await options('gateway', 'bquic'), 'gateway'), relay = shown(await options('relay', 'bquic'), 'relay');
	let taken = 0;

	for (const [ type, list, names ] of [ [ 'gateway', gateway, [ 'listen', 'redirect', 'metrics' ] ], [ 'relay', relay, [ 'gateway', 'metrics' ] ] ])
		for (const name of names)
			for (const value of [ ':8444', '8444', '10.1.2.3:8444', '10.1.2.3', 'fd00::1', 'fd00::1:8444', '[fd00::1]:8444', '[fd00::1]', '[fe80::9%mesh]:8444', '[fe80::9%br-lan.7]:8444',
				'gateway.example.org:8444', 'gateway.example.org', 'https://gateway.example.org:8444', '10.1.2.3:0', '10.1.2.3:65535', '10.1.2.3:65536', '10.1.2.3:http' ]) {
				const good = list.find((o) => o.name == name).validate('x', value) === true;

				assert.equal(good, !wrong(type, name, value), `${type}.${name} ${value}`);
				taken += good;
			}
	assert.ok(taken >= 20, taken);
});

test('forms take the prefixes, ports and pins that bquic check takes', async () => {
	const forms = { gateway: await options('gateway', 'bquic'), peer: await options('gateway', 'bquic'), relay: await options('relay', 'bquic') };
	const values = {
		prefix: [ '10.0.0.0/8', '10.1.2.3', '10.1.2.3/16', '10.1.2.3/32', '10.1.0.0/16', '0.0.0.0/0', '1.0.0.0/0', '10.0.0.0/33', '10.0.0.0/08', '10.0.0.0/', '10.0.0.0/8/8', '10.0.0/8', '010.0.0.0/8',
			'256.0.0.0/8', 'fd00::/8', 'fd00::', 'fd00::1/8', 'fd00::1/128', 'fd00::1/129', 'fd00:1:2:3::/64', 'fd00:1:2:3::/63', 'fd00:1:2:2::/63', '::/0', '::', '::1', '::1.2.3.4', '1::2::3',
			'1:2:3:4:5:6:7:8', '1:2:3:4:5:6:7:8:9', 'fd00', 'FD00::/8', '::ffff:10.0.0.0/104', '::ffff:10.1.2.3', '::ffff:0:0/96', '64:ff9b::1.2.3.4', 'fe80::1%lan', 'fe80::%lan/64', 'x@[::1', 'a.example', '*', '/', '/8' ],
		ports: [ '1', '0', '25', '0025', '65535', '65536', '1-65535', '0-9', '9-1', '7-7', '6000-6063', '1-', '-1', '1-2-3', '1:2', 'ssh', '25.5', '100000-100001' ],
		pins: [ `sha256/${'A'.repeat(43)}=`, `sha256/${'A'.repeat(42)}B=`, `sha256/${'+'.repeat(42)}8=`, `sha256/${'A'.repeat(43)}`, `sha256/${'A'.repeat(44)}`, `sha1/${'A'.repeat(43)}=` ]
	};
	let taken = 0;

	for (const [ type, name, kind ] of [ [ 'gateway', 'mesh', 'prefix' ], [ 'gateway', 'connect_from', 'prefix' ], [ 'gateway', 'connect_to', 'prefix' ], [ 'peer', 'prefix', 'prefix' ],
		[ 'relay', 'exclude', 'prefix' ], [ 'relay', 'exclude_port', 'ports' ], [ 'relay', 'udp_port', 'ports' ], [ 'relay', 'pin', 'pins' ] ]) {
		const option = shown(forms[type], type).find((o) => o.name == name);

		assert.equal(option.datatype, undefined, name); /* LuCI would check that, too */
		for (const value of values[kind]) {
			const good = option.validate.call({ section: { formvalue: () => undefined } }, 'x', value) === true;

			assert.equal(good, !wrong(type, name, value), `${type}.${name} ${value}`);
			taken += good;
		}
	}
	assert.ok(taken >= 100, taken);
});

test('forms take the paths and tokens that bquic check takes', async () => {
	const gateway = await options('gateway', 'bquic'), relay = await options('relay', 'bquic');
	const values = { token: [ 'a-good-token', 'a token', '12345678', `sha256:${'0'.repeat(64)}`, `SHA256:${'aF'.repeat(32)}`, 'sha256:00000000', `sha256:${'g'.repeat(64)}` ] };
	/* with a certificate, which its key needs */
	const section = { formvalue: (id, name) => name == 'certificate' ? '/etc/bquic/site.pem' : undefined };

	for (const [ sections, type, names ] of [
		[ gateway, 'gateway', [ 'certificate', 'key', 'state_dir', 'access_log', 'acme_webroot', 'status_socket', 'token' ] ],
		[ gateway, 'site', [ 'root', 'certificate', 'key', 'origin_ca' ] ], [ gateway, 'peer', [ 'token' ] ], [ relay, 'relay', [ 'ca', 'state_dir', 'status_socket', 'token' ] ]
	])
		for (const name of names)
			for (const value of values[name] ?? [ '/www', 'www', './www', 'C:\\www' ])
				assert.equal(shown(sections, type).find((o) => o.name == name).validate.call({ section }, 'x', value) === true,
					!wrong(type, name, value, name == 'token' ? '' : 'absolute path'), `${type}.${name} ${value}`);
});

test('switches are what the daemons take them for, whatever word the file has', async () => {
	const forms = [ ...await options('gateway', 'bquic'), ...await options('relay', 'bquic'), ...await options('scheduler', 'wifirr') ];
	const switches = new Set(forms.flatMap((s) => s.options).filter((o) => o.kind == 'Flag' || o.values.join() == ',1,0').map((o) => o.name));

	assert.ok(switches.size >= 9);
	for (const [ word, value ] of [ 'on', 'yes', 'true', 'enabled', 'off', 'no', 'false', 'disabled' ].map((w, i) => [ w, i < 4 ? '1' : '0' ]))
		for (const option of switches) {
			const env = luci((name) => fs.readFileSync(path.join(po.app, 'htdocs/luci-static/resources', name), 'utf8'), {}, { bquic: { x: { '.type': 'any', '.name': 'x', [option]: word } } });

			assert.equal(await env.load('bquic.common').loadForm('bquic'), true);
			assert.deepEqual(env.did, [ [ 'set', 'bquic', 'x', option, value ] ], `${option} ${word}`);
			assert.equal(wrong('relay', 'enabled', word), false, word);
		}
});

test('a list that needs a value says so in its own field: LuCI’s dialogues are silent about it', async () => {
	const lists = [ ...await options('gateway', 'bquic'), ...await options('relay', 'bquic'), ...await options('scheduler', 'wifirr') ].flatMap((s) => s.options)
		.filter((o) => o.kind == 'DynamicList' && o.rmempty === false);

	assert.deepEqual(names(lists), [ 'host', 'token' ]);
	for (const o of lists) {
		const said = (value, ...values) => o.validate?.call({ section: { formvalue: (id, name) => name == o.name && values.length ? values : undefined } }, 'x', value);

		assert.equal(said(''), 'Must not be empty.', o.name);
		assert.equal(said('', 'a-good-token'), true, o.name);
		assert.equal(said('a-good-token'), true, o.name);
	}
});

test('forms take only whole numbers', async () => {
	const sections = [ ...await options('gateway', 'bquic'), ...await options('relay', 'bquic'), ...await options('scheduler', 'wifirr') ];
	const ranges = sections.flatMap((s) => s.options).map((o) => String(o.datatype)).filter((type) => type.includes('range('));

	/* LuCI's range() also takes 2.5 */
	assert.ok(ranges.length >= 25);
	for (const type of ranges)
		assert.match(type, /and\(uinteger,range\(\d+,\d+\)\)/);
	for (const [ type, option ] of [ [ 'peer', 'rate' ], [ 'relay', 'cpu_share' ], [ 'profile', 'ack_delay' ] ])
		assert.ok(wrong(type, option, '2.5'), option);
});

/* [ [ option, type ] ] of the init script */
function validated() {
	const text = source('package/wifirr-sched/files/etc/init.d/wifirr-sched');
	const list = [ ...text.match(/^OPTIONS='\n(.*?)\n'$/ms)[1].matchAll(/^(\w+):(.*)$/gm) ].map((m) => [ m[1], m[2] ]);

	assert.ok(list.length >= 15);

	return list;
}

test('forms, init script and wifirrd know the same options', async () => {
	const flags = [ ...run(wifirrd, [ '--help' ]).stdout.matchAll(/^ {2}--([a-z-]+)/gm) ].map((m) => m[1].replace(/-/g, '_'))
		.filter((f) => ![ 'control', 'options', 'help', 'version' ].includes(f)).concat('enabled').sort();

	assert.ok(flags.length >= 15);
	assert.deepEqual(validated().map((o) => o[0]).sort(), flags, 'init script');
	assert.deepEqual(names(shown(await options('scheduler', 'wifirr'), 'scheduler')), flags, 'form');
});

test('bounds of form, init script and wifirrd are the same', async () => {
	const form = shown(await options('scheduler', 'wifirr'), 'scheduler');
	let bounds = 0;

	for (const [ name, type ] of validated()) {
		const m = type.match(/^range\((\d+),(\d+)\)$/);
		const o = form.find((f) => f.name == name);

		if (o.kind == 'ListValue' && type.startsWith('or('))
			assert.deepEqual(o.values.map((v) => `"${v}"`).join(','), type.slice(3, -1), name);
		if (!m || name == 'verbose')
			continue;
		bounds++;
		assert.equal(o.datatype, `and(uinteger,${m[0]})`, name);
		for (const [ value, good ] of [ [ m[1], true ], [ m[2], true ], [ m[1] - 1, false ], [ +m[2] + 1, false ] ]) {
			const flag = `--${name.replace(/_/g, '-')}`;
			/* no such device: the last complaint is about the device, not the flag */
			const complaint = run(wifirrd, [ '--device', 'nosuchdev0', `${flag}=${value}` ]).stderr;
			assert.equal(complaint.includes(`${flag} `), !good, `${flag} ${value}: ${complaint}`);
		}
	}
	assert.ok(bounds >= 8);
});

test('defaults that the pages show are those of the daemons, and the init script has none', async () => {
	const init = source('package/bquic-gateway/files/etc/init.d/bquic-gateway');
	/* The package's file agrees with the schema (config.TestDefaultFile). */
	const file = source('files/etc/config/bquic');
	const value = (name) => file.match(new RegExp(`^\\t(?:option|list) ${name} '([^']*)'`, 'm'))?.[1];

	for (const name of [ 'listen', 'state_dir', 'port', 'interface', 'mode' ])
		assert.ok(value(name) && !init.includes(` ${value(name)}`) && !init.includes(`=${value(name)}`), name);
	assert.doesNotMatch(init, /config_(get|load|foreach)|uci /);
	const sections = file.split(/^config /m);
	let held = 0;

	for (const type of [ 'gateway', 'relay' ]) {
		const given = sections.find((s) => s.startsWith(`${type} `));
		for (const o of shown(await options(type, 'bquic'), type)) {
			const said = given.match(new RegExp(`^\\t(?:option|list) ${o.name} '([^']*)'`, 'm'))?.[1];
			const hint = o.placeholder ?? (o.kind == 'ListValue' ? o.default : undefined);
			if (said == null || hint == null)
				continue;
			assert.equal(hint, said, `${type}.${o.name}`);
			held++;
		}
	}
	assert.ok(held >= 12, `${held} defaults`);

	/* numbers in wifirrd's help: the last parentheses of an option, "(3; paper: 5)" */
	const help = run(wifirrd, [ '--help' ]).stdout.split(/^ {2}--/m).slice(1);
	let compared = 0;

	for (const o of shown(await options('scheduler', 'wifirr'), 'scheduler').filter((f) => f.placeholder)) {
		const told = help.find((h) => h.startsWith(`${o.name.replace(/_/g, '-')} `)).match(/\(([^()]*)\)\s*$/)[1];

		assert.deepEqual(o.placeholder.match(/\d+/g), told.match(/\d+/g), o.name);
		compared++;
	}
	assert.ok(compared >= 8);
});

test('every text is in the template and translated, with the same placeholders', () => {
	assert.equal(fs.readFileSync(path.join(po.app, 'po/templates/bquic.pot'), 'utf8'), po.template(),
		'po/templates/bquic.pot is old: node luci-app-bquic/test/po.js');
	const texts = [ ...po.texts().keys() ].sort();
	const places = (s) => s.match(/%(\.\d)?[sdft%]/g) ?? [];

	assert.ok(texts.length > 100);
	for (const language of po.languages) {
		const catalog = po.catalog(`po/${language}/bquic.po`);

		catalog.delete('');
		assert.deepEqual([ ...catalog.keys() ].sort(), texts, language);
		for (const [ id, text ] of catalog) {
			assert.ok(text, `${language}: ${id}`);
			assert.deepEqual(places(text), places(id), `${language}: ${id}`);
		}
	}
});

test('numbers have the decimal mark of the page’s language', () => {
	for (const language of po.languages) {
		const catalog = po.catalog(`po/${language}/bquic.po`);
		const graph = luci((name) => source(`luci-app-bquic/htdocs/luci-static/resources/${name}`), {}, {}, (text) => catalog.get(text)).load('bquic.graph');

		assert.deepEqual([ graph.format(12345678, 'bit/s'), graph.format(7, 'ms'), graph.format(0.1) ], [ '12,3\u00a0Mbit/s', '7\u00a0ms', '0,1' ], language);
	}
	/* LuCI has a point for these in all languages */
	assert.deepEqual([ ...po.texts().keys() ].filter((text) => /%\.\d/.test(text)), []);
});

test('the daemons’ fixed texts, which pages translate, are those of the daemons', () => {
	const { load } = luci((name) => fs.readFileSync(path.join(po.app, 'htdocs/luci-static/resources', name), 'utf8'), {}, {});
	const scheduling = load('bquic.scheduling');
	const { profiles } = JSON.parse(run(bquic, [ 'rpcd', 'call', 'profiles', '--config', '/dev/null' ], { input: '{}' }).stdout);
	const plain = (text) => text.replace(/’/g, "'");

	assert.deepEqual(Object.fromEntries(Object.entries(load('bquic.profile').texts()).map(([ name, text ]) => [ name, plain(text) ])),
		Object.fromEntries(profiles.map((p) => [ p.name, p.doc ])));

	/* the formats of policy_explain() and contention_explain() */
	const formats = [ [ 'policy.c', 'policy_explain' ], [ 'contention.c', 'contention_explain' ] ].flatMap(([ file, name ]) => {
		const text = source(`package/wifirr-sched/src/${file}`).split(`void ${name}(`)[1].split('\n}\n')[0];
		return [ ...text.matchAll(/"(.*?)"/g) ].map((m) => m[1].replace(/%u/g, '%d'));
	});
	assert.ok(formats.length >= 15);
	assert.deepEqual(scheduling.reasons((s) => s).slice().sort(), formats.sort());
	/* and each is found again in what the daemon prints */
	let n = 1;
	for (const format of formats) {
		const said = format.replace(/%d/g, () => n++).replace(/%%/g, '%');
		assert.equal(scheduling.reason(said), said);
	}
	assert.equal(scheduling.reason('driver says: (100 %)'), 'driver says: (100 %)');
});

test('why a relay takes nothing, or sees nothing, is told by the words that the pages know', () => {
	const known = source('luci-app-bquic/htdocs/luci-static/resources/bquic/taking.js');
	const words = [ 'processor/processor.go', 'relay/unseen.go' ].flatMap((file) => [ ...source(`package/bquic-gateway/src/internal/${file}`).matchAll(/^\t(?:Why|Unseen)\w+ += "([a-z ]+)"/gm) ].map((m) => m[1]));

	assert.equal(words.length, 10);
	for (const word of words)
		assert.match(known, new RegExp(`^\\t\\t(${word}|'${word}'): `, 'm'), word);
});

test('what a lever gains is told by the names that the pages read', () => {
	const told = source('package/wifirr-sched/src/control.c').split('static void put_gain(')[1].split('\n}\n')[0];
	const names = [ ...told.matchAll(/\\"(\w+)\\":/g) ].map((m) => m[1]);
	const gains = source('luci-app-bquic/htdocs/luci-static/resources/bquic/scheduling.js').split('\tgains(')[1].split('\n\t},')[0];

	assert.deepEqual(names, [ 'permille', 'low', 'high', 'trials', 'on' ]);
	for (const name of names)
		assert.ok(gains.includes(`g.${name}`), name);
	for (const name of [ 'gain', 'rts_gain' ])
		assert.match(source('package/wifirr-sched/src/control.c'), new RegExp(`put_gain\\(t, "${name}"`));
});

test('texts outside of _() are only names and units', () => {
	for (const file of po.files('htdocs', '.js'))
		po.walk(po.parse(file), (node) => {
			if (node.type != 'CallExpression' || node.callee.name != 'E' || node.arguments[2]?.type != 'ArrayExpression')
				return;
			for (const child of node.arguments[2].elements)
				if (child?.type == 'Literal')
					assert.match(child.value, /^\s*$/, `${file}:${child.loc.start.line}`);
		});
});

test('the Grafana board asks for metrics that exist', () => {
	/* the tests of the metrics check the tables of gateway.md */
	const known = [ ...source('docs/gateway.md').matchAll(/^\| `(bquic_\w+)/gm) ].map((m) => m[1]).concat(
		[ ...source('package/wifirr-sched/src/control.c').matchAll(/metric(s?)\(t, w, "(\w+)"/g) ].map((m) => `wifirr_${m[2]}${m[1] ? '_gain_permille' : ''}`));
	const asked = [ ...source('docs/grafana-mesh.json').matchAll(/"(?:expr|query)": "(.*)"/g) ].flatMap((m) => m[1].match(/\b(?:bquic|wifirr)_\w+/g) ?? []);

	assert.ok(asked.length > 10);
	for (const name of asked)
		assert.ok(known.includes(name), name);
});

test('the dashboard calls a graph what LuCI calls it', () => {
	const drawn = JSON.parse(source('docs/grafana-mesh.json')).panels.map((p) => p.title);

	for (const [ , title ] of source('luci-app-bquic/htdocs/luci-static/resources/view/bquic/overview.js').matchAll(/graph\.create\(_\('(.*?)'\)/g))
		assert.ok(drawn.includes(title) || title == 'Traffic through gateway and relay', title); /* the dashboard has that of the relay alone */
});

test('translations keep the programs’ words for pins, tokens and hashes', () => {
	const words = { pin: /\bpin(s|es)?\b/i, token: /\btokens?\b/i, hash: /\bhash(es)?\b/i };

	for (const language of po.languages)
		for (const [ text, translated ] of po.catalog(`po/${language}/bquic.po`))
			for (const [ word, pattern ] of Object.entries(words))
				assert.equal(pattern.test(translated), pattern.test(text), `${language}, ${word}: ${translated}`);
});

test('a translation names a field or a tab by its translated name', () => {
	for (const language of po.languages) {
		const catalog = po.catalog(`po/${language}/bquic.po`);
		let named = 0;

		for (const [ text, translated ] of catalog) {
			const name = text.match(/\bunder (Advanced|Uplinks)\b/)?.[1] ?? text.match(/“([A-Z][^”]*)”/)?.[1];

			if (name) {
				assert.ok(translated.includes(catalog.get(name)), `${language}: ${translated}`);
				named++;
			}
		}
		assert.ok(named >= 3, `${named} names`);
	}
});
