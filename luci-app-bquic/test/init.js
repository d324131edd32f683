// SPDX-License-Identifier: Apache-2.0
'use strict';
// The init scripts, with BusyBox's shell as on a router and with rc.sh in the place of
// procd; and the daemons that they describe, run as procd runs them.

const fs = require('node:fs');
const path = require('node:path');
const { spawn, spawnSync } = require('node:child_process');

const root = path.resolve(__dirname, '../..');
const tmp = fs.mkdtempSync(path.join(process.env.TEST_TMP, 'init-'));

/* init(script, fn, { section: { '.type', option: value } }, environment) -> lines of words, and set or add */
function init(name, fn, sections, env) {
	const script = path.join(root, `package/${name}/files/etc/init.d/${name}`);
	const variables = { SECTIONS: Object.entries(sections).map(([ s, o ]) => `${o['.type']}/${s}`).join(' ') };

	for (const [ s, options ] of Object.entries(sections))
		for (const [ o, value ] of Object.entries(options))
			if (!o.startsWith('.'))
				variables[`O_${s}_${o}`] = [ value ].flat().join(' ');
	const inside = env?.TEST_KERNEL ? [ 'ip', 'netns', 'exec', env.TEST_KERNEL ] : [];
	const [ first, ...words ] = [ ...inside, 'busybox', 'sh', '-u', path.join(__dirname, 'rc.sh'), script, ...fn.split(' ') ];
	const r = spawnSync(first, words, {
		encoding: 'utf8', cwd: tmp, env: { PATH: process.env.PATH, ...variables, ...env }
	});

	const lines = r.stdout.split('\n').filter((l) => l).map((l) => l.split('|'));

	return { status: r.status, error: r.stderr, method: lines.find((l) => l[0] == 'procd_close_service')?.[1], lines: lines.filter((l) => l[0] != 'procd_close_service') };
}

/* The words of the daemon's command line. */
function command(lines) {
	return lines.filter((l) => l[0] == 'procd_set_param' && l[1] == 'command').flatMap((l) => l.slice(2));
}

/* Converts a UCI file to sections, with lists as words separated by blanks, and back. */
function uciFile(file) {
	const sections = {};
	let name = null;

	for (const line of fs.readFileSync(file, 'utf8').split('\n')) {
		const m = line.match(/^\s*(config|option|list) (\S+)(?: '(.*)')?$/);
		if (m?.[1] == 'config') {
			name = m[3];
			sections[name] = { '.type': m[2] };
		}
		else if (m) {
			sections[name][m[2]] = m[1] == 'list' && sections[name][m[2]] ? `${sections[name][m[2]]} ${m[3]}` : m[3];
		}
	}

	return sections;
}

function uciText(sections) {
	const line = (option, value) => Array.isArray(value) ? value.map((v) => `\tlist ${option} '${v}'\n`).join('') : `\toption ${option} '${value}'\n`;

	return Object.entries(sections).map(([ name, options ]) => `config ${options['.type']} '${name}'\n` +
		Object.entries(options).filter(([ o ]) => !o.startsWith('.')).map(([ o, v ]) => line(o, v)).join('')).join('\n');
}

/* procd, for the daemons of an init script, which run in a network namespace. */
class Procd {
	constructor(name, namespace, env) {
		Object.assign(this, { name, namespace, env, running: new Map() });
	}

	/* Starts, restarts and stops as the init script's reload says. Returns the names of what got a signal. */
	async reload(sections) {
		const { status, lines, error } = init(this.name, 'reload_service', sections, { ...this.env, RUNNING: [ ...this.running.keys() ].join(' ') });
		const wanted = new Map();
		let last;

		if (status)
			throw new Error(error);
		for (const [ word, ...rest ] of lines) {
			if (word == 'procd_open_instance')
				wanted.set(rest[0], last = { command: [], files: '' });
			else if (word == 'procd_set_param' && rest[0] == 'command')
				last.command = rest.slice(1);
			else if (word == 'procd_set_param' && rest[0] == 'file')
				last.files += fs.readFileSync(rest[1], 'utf8');
		}
		const same = (a, b) => a && b && a.files == b.files && a.command.join('\n') == b.command.join('\n');
		for (const [ name, now ] of this.running)
			if (!same(now, wanted.get(name)))
				await this.stop(name);
		for (const [ name, instance ] of wanted)
			if (!this.running.has(name)) {
				const log = path.join(tmp, `${name}.log`);
				const child = spawn('ip', [ 'netns', 'exec', this.namespace, ...instance.command ], { stdio: [ 'ignore', fs.openSync(log, 'a'), fs.openSync(log, 'a') ], env: { PATH: process.env.PATH } });
				this.running.set(name, { ...instance, child, log });
			}
		const signalled = lines.filter((l) => l[0] == 'procd_send_signal').map((l) => l[2]);
		for (const name of signalled)
			this.running.get(name).child.kill('SIGHUP');

		return signalled;
	}

	async stop(name) {
		const { child } = this.running.get(name);
		const ended = new Promise((done) => child.once('exit', done));

		this.running.delete(name);
		if (child.exitCode === null && child.signalCode === null && child.kill())
			await ended;
	}

	async end() {
		for (const name of [ ...this.running.keys() ])
			await this.stop(name);
	}
}

module.exports = { root, tmp, init, command, uciFile, uciText, Procd };
