// SPDX-License-Identifier: Apache-2.0
'use strict';
// The texts of the app and their translations. `node po.js` brings
// po/templates/bquic.pot up to date, and prints the missing texts of each language.

const fs = require('node:fs');
const path = require('node:path');
/* also works by hand, after a test run has installed the modules */
const espree = require(require.resolve('espree', { paths: [ path.resolve(__dirname, '../../.cache/luci') ] }));

const app = path.resolve(__dirname, '..');

function files(dir, ext) {
	return fs.readdirSync(path.join(app, dir), { recursive: true }).filter((f) => f.endsWith(ext)).map((f) => path.join(dir, f)).sort();
}

function walk(node, visit) {
	if (!node || typeof node.type != 'string')
		return;
	visit(node);
	for (const value of Object.values(node))
		for (const child of Array.isArray(value) ? value : [ value ])
			if (child && typeof child == 'object')
				walk(child, visit);
}

function parse(file) {
	return espree.parse(fs.readFileSync(path.join(app, file), 'utf8'),
		{ ecmaVersion: 2022, loc: true, ecmaFeatures: { globalReturn: true } });
}

/* Map from text to its position. A text that is not a literal cannot be translated. */
function texts() {
	const found = new Map();
	const add = (text, where) => found.set(text, [ ...found.get(text) ?? [], where ]);

	for (const file of files('htdocs', '.js'))
		walk(parse(file), (node) => {
			if (node.type != 'CallExpression' || node.callee.name != '_')
				return;
			if (node.arguments.length != 1 || typeof node.arguments[0].value != 'string')
				throw new Error(`${file}:${node.loc.start.line}: _() of something that is no literal`);
			add(node.arguments[0].value, `${file}:${node.loc.start.line}`);
		});
	for (const file of files('root', '.json'))
		for (const [ , text ] of fs.readFileSync(path.join(app, file), 'utf8').matchAll(/"(?:title|description)": "([^"]*)"/g))
			add(text, file);

	return found;
}

const quote = (s) => '"' + s.replace(/[\\"]/g, '\\$&') + '"';

function template() {
	const header = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8"\n';

	return header + [ ...texts() ].map(([ text, where ]) =>
		`\n${where.map((w) => `#: ${w}\n`).join('')}msgid ${quote(text)}\nmsgstr ""\n`).join('');
}

/* Map from msgid to msgstr; each takes one line, as here and in the output of LuCI's tools. */
function catalog(file) {
	const found = new Map();
	const unquote = (s) => JSON.parse(s);
	let id = null;

	for (const line of fs.readFileSync(path.join(app, file), 'utf8').split('\n')) {
		const m = line.match(/^(msgid|msgstr) (".*")$/);

		if (!m && line && !line.startsWith('#') && !line.startsWith('"'))
			throw new Error(`${file}: ${line}`);
		if (m?.[1] == 'msgid') {
			id = unquote(m[2]);
			if (found.has(id))
				throw new Error(`${file}: twice: ${id}`);
		}
		else if (m) {
			found.set(id, unquote(m[2]));
		}
	}

	return found;
}

module.exports = { app, files, parse, walk, texts, template, catalog, languages: [ 'ca', 'de', 'es' ] };

if (require.main === module) {
	fs.writeFileSync(path.join(app, 'po/templates/bquic.pot'), template());
	for (const language of module.exports.languages) {
		const file = `po/${language}/bquic.po`;
		const had = fs.existsSync(path.join(app, file)) ? catalog(file) : new Map();

		for (const text of texts().keys())
			if (!had.get(text))
				console.log(`${language}: ${text}`);
	}
}
