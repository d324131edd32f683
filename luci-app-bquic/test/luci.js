// SPDX-License-Identifier: Apache-2.0
'use strict';
// As much of LuCI as the app's modules see of it, without a router: `load(name)`
// runs a module with what it requires. Runs in node, and in a browser, where E()
// and dom.content() take a lone string as markup, as LuCI's do.

function luci(read, answers, config, translate = (text) => text) {
	const polls = [];
	const did = []; // what changes something
	const sections = [];
	const made = {};

	function append(node, children) {
		if (Array.isArray(children)) {
			for (const child of children)
				if (child !== null && child !== undefined)
					node.append(typeof child == 'object' ? child : document.createTextNode(child));
		}
		else if (typeof children == 'object' && children) {
			node.append(children);
		}
		else if (children !== null && children !== undefined) {
			node.innerHTML = String(children);
		}

		return node;
	}

	function E(tag, attributes, children) {
		if (typeof document == 'undefined')
			return {};
		if (Array.isArray(tag))
			return append(document.createDocumentFragment(), attributes);

		const node = document.createElement(tag);
		if (attributes === undefined || Array.isArray(attributes) || typeof attributes == 'string')
			return append(node, attributes);
		for (const [ name, value ] of Object.entries(attributes)) {
			if (typeof value == 'function')
				node.addEventListener(name, value);
			else if (value !== null && value !== undefined)
				node.setAttribute(name, value);
		}

		return append(node, children);
	}

	/* a section or a map of a form, which remembers its options */
	function recorder(type) {
		const options = [];
		const self = {
			options, type,
			tab() {},
			section(kind, name, title) {
				const s = recorder(kind == 'NamedSection' ? title : name);
				sections.push(s);
				return s;
			},
			option(kind, name, title) {
				const o = { kind, name, title, values: [], value(v) { o.values.push(v); } };
				options.push(o);
				return o;
			},
			taboption(tab, ...rest) { return self.option(...rest); },
			render() { return Promise.resolve(E('div', {}, [])); },
			lookupOption() { return []; }
		};

		return self;
	}

	const kinds = [ 'NamedSection', 'TypedSection', 'GridSection', 'Value', 'Flag', 'ListValue', 'DynamicList', 'DummyValue' ];
	const base = {
		extend(properties) { return Object.assign(Object.create(base), properties); }
	};
	const have = {
		baseclass: base,
		view: base,
		dom: { content(node, children) { node.replaceChildren(); return append(node, children); }, append },
		form: Object.assign({ Map: function() { return recorder('map'); } }, Object.fromEntries(kinds.map((k) => [ k, k ]))),
		poll: { add(fn) { polls.push(fn); } },
		rpc: {
			declare({ object, method }) {
				return (...args) => {
					if (object == 'uci')
						did.push([ `${object}.${method}`, ...args ]);
					const answer = answers[`${object}.${method}`];
					return answer === undefined ? Promise.reject(new Error('Object not found')) : Promise.resolve(structuredClone(answer));
				};
			},
			list: (...names) => Promise.resolve(Object.fromEntries(names.filter((n) => answers.objects?.includes(n)).map((n) => [ n, {} ])))
		},
		uci: {
			load: (name) => config[name] ? Promise.resolve() : Promise.reject(new Error('no such file')),
			get: (name, section, option) => option ? config[name]?.[section]?.[option] : config[name]?.[section],
			sections: (name, type) => Object.values(config[name] ?? {}).filter((s) => s['.type'] == type),
			add() {},
			set(...args) { did.push([ 'set', ...args ]); },
			save() { did.push([ 'save' ]); return Promise.resolve(); },
			changes: () => Promise.resolve(answers.changes ?? {})
		},
		ui: {
			createHandlerFn: (self, fn) => fn,
			addNotification(title, node) { did.push([ 'notice', node.textContent ]); },
			changes: { init() { did.push([ 'count' ]); }, apply() { did.push([ 'apply' ]); } }
		},
		'tools.widgets': { DeviceSelect: 'DeviceSelect' }
	};
	const L = {
		resource: (path) => `/luci-static/resources/${path}`,
		url: (path) => `/cgi-bin/luci/${path}`,
		hasViewPermission: () => answers.readonly !== true,
		resolveDefault: (promise, value) => Promise.resolve(promise).catch(() => value)
	};

	/* luci.js adds this to String */
	String.prototype.format = function(...args) {
		return this.replace(/%(%|(?:\.(\d+))?[sdft])/g, (all, what, digits) => {
			if (what == '%')
				return '%';
			const value = args.shift();
			switch (what.at(-1)) {
			case 's': return String(value);
			case 'd': return String(Math.floor(+value || 0));
			case 'f': return (+value || 0).toFixed(digits ?? 6);
			case 't': return `${+value || 0}s`;
			}
			return all;
		});
	};

	function load(name) {
		if (have[name])
			return have[name];
		if (made[name])
			return made[name];

		const source = read(name.replace(/\./g, '/') + '.js');
		const names = [], values = [];
		for (const [ , module, alias ] of source.matchAll(/^'require ([\w.]+)(?: as (\w+))?';$/gm)) {
			names.push(alias ?? module);
			values.push(load(module));
		}
		const _ = translate;

		return made[name] = new Function(...names, '_', 'E', 'L', source)(...values, _, E, L);
	}

	return { load, polls, sections, did };
}

if (typeof module != 'undefined')
	module.exports = luci;
