// SPDX-License-Identifier: Apache-2.0
'use strict';
// The parts of LuCI that the app's modules use, without a router: `load(name)`
// runs a module with its requirements, and `apply()` is the button Save & Apply. Works in
// node, and in a browser, where E() and dom.content() take a lone string as markup, like LuCI's.

function luci(read, answers, config, translate = (text) => text) {
	const polls = [];
	const did = []; // calls that change something
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

	/* An option of a form, as LuCI draws it: with its title as the label. */
	class Option {
		constructor(map, section, name, title, description) {
			Object.assign(this, { map, section, name, title, description, values: [], words: [] });
		}

		get kind() { return this.constructor.name; }
		value(value, text) { this.values.push(value); this.words.push(text ?? value); }
		cbid(id) { return `widget.cbid.${this.map.config}.${id}.${this.name}`; }
		element(id) { return document.getElementById(this.cbid(id)); }
		formvalue(id) { return this.element(id)?.value; }
		getUIElement(id) { return { setValue: (value) => { this.element(id).value = value; } }; }

		/* The widget's value goes to the configuration, if it is valid: nothing for an empty field, or for the default. */
		parse(id) {
			const section = config[this.map.config][id], values = [ this.formvalue(id) ?? [] ].flat().filter((v) => v !== '');

			for (const value of this.list || !values.length ? [ ...values, '' ] : values) {
				const said = this.validate?.(id, value) ?? true;
				if (said !== true)
					throw new Error(`${this.name}: ${said}`);
			}
			if (!values.length && this.rmempty === false)
				throw new Error(`${this.name}: must not be empty`);
			if (!values.length || this.rmempty !== false && values.join(' ') == this.default)
				delete section[this.name];
			else
				section[this.name] = this.list ? values : values[0];
		}

		renderWidget(id, index, value) {
			return E('input', { 'id': this.cbid(id), 'type': this.password ? 'password' : 'text', 'class': 'cbi-input-text', 'value': [ value ?? [] ].flat().join(' '), 'placeholder': this.placeholder });
		}

		render(id) {
			const value = config[this.map.config]?.[id]?.[this.name] ?? this.default;

			return E('div', { 'class': 'cbi-value', 'data-name': this.name }, [
				this.title ? E('label', { 'class': 'cbi-value-title', 'for': this.cbid(id) }, [ this.title ]) : null,
				E('div', { 'class': 'cbi-value-field' }, [
					this.renderWidget(id, 0, value),
					this.description ? E('div', { 'class': 'cbi-value-description' }, [ this.description ]) : null
				])
			]);
		}
	}
	class Value extends Option {}
	/* One field, with blanks between the values. */
	class DynamicList extends Option {
		get list() { return true; }
		formvalue(id) { return this.element(id)?.value.split(' ').filter((v) => v); }
	}
	class DummyValue extends Option {
		parse() {}
	}
	class Flag extends Option {
		constructor(...args) { super(...args); this.default = '0'; }
		formvalue(id) { return this.element(id).checked ? '1' : '0'; }
		renderWidget(id, index, value) {
			return E('input', { 'id': this.cbid(id), 'type': 'checkbox', 'checked': value == '1' ? '' : null });
		}
	}
	class ListValue extends Option {
		renderWidget(id, index, value) {
			return E('select', { 'id': this.cbid(id), 'class': 'cbi-input-select' },
				this.values.map((v, i) => E('option', { 'value': v, 'selected': v == value ? '' : null }, [ this.words[i] ])));
		}
	}
	class DeviceSelect extends ListValue {
		constructor(...args) { super(...args); [ '', 'br-lan', 'wan', 'wlan0' ].forEach((device) => this.value(device)); }
		get list() { return this.multiple; }
	}

	/* A section of a form. LuCI shows the options of a table's rows in dialogs; here they are below it. */
	class Section {
		constructor(map, type, ids, title, description) {
			Object.assign(this, { map, type, ids, title, description, options: [] });
		}

		tab() {}
		option(kind, name, title, description) {
			const o = new kind(this.map, this, name, title, description);
			this.options.push(o);
			return o;
		}
		taboption(tab, ...rest) { return this.option(...rest); }
		formvalue(id, name) { return this.options.find((o) => o.name == name)?.formvalue(id); }
		render() {
			return E('div', { 'class': 'cbi-section' }, [
				this.title ? E('h3', {}, [ this.title ]) : null,
				this.description ? E('div', { 'class': 'cbi-section-descr' }, [ this.description ]) : null,
				...this.ids().flatMap((id) => this.options.map((o) => o.render(id)))
			]);
		}
	}

	class Map {
		constructor(config, title, description) {
			Object.assign(this, { config, title, description, sections: [] });
		}

		section(kind, ...rest) {
			const [ type, ids, words ] = kind == 'NamedSection' ? [ rest[1], () => [ rest[0] ], rest.slice(2) ]
				: [ rest[0], () => Object.keys(config[this.config] ?? {}).filter((id) => config[this.config][id]['.type'] == rest[0]), rest.slice(1) ];
			const s = new Section(this, type, ids, ...words);
			this.sections.push(s);
			sections.push(s);
			return s;
		}
		lookupOption(name) { return this.sections.flatMap((s) => s.options.filter((o) => o.name == name)); }
		/* LuCI draws the map's content anew after Save, and when a section was added or removed. */
		reset() {
			this.root ??= E('div', { 'class': 'cbi-map' });
			this.root.replaceChildren?.(E('h2', {}, [ this.title ]), E('div', { 'class': 'cbi-map-descr' }, [ this.description ]), ...this.sections.map((s) => s.render()));

			return Promise.resolve(this.root);
		}
		load() { return Promise.resolve(); }
		render() { return this.reset(); }
	}

	class Uci {
		constructor() { this.loaded = {}; } // copies of configurations, which may be older than these
		load(name) {
			if (!config[name])
				return Promise.reject(new Error('no such file'));
			this.loaded[name] ??= structuredClone(config[name]);
			return Promise.resolve();
		}
		unload(name) { delete this.loaded[name]; }
		get(name, section, option) { return option ? this.loaded[name]?.[section]?.[option] : this.loaded[name]?.[section]; }
		sections(name, type) { return Object.values(this.loaded[name] ?? {}).filter((s) => !type || s['.type'] == type); }
		add(...args) { did.push([ 'add', ...args ]); }
		set(...args) { did.push([ 'set', ...args ]); }
		save() {
			did.push([ 'save' ]);
			this.loaded = structuredClone(config);
			return Promise.resolve();
		}
	}

	const base = {
		extend(properties) { return Object.assign(Object.create(base), properties); }
	};
	const have = {
		baseclass: base,
		view: base,
		dom: { content(node, children) { node.replaceChildren(); return append(node, children); }, append },
		form: { Map, NamedSection: 'NamedSection', TypedSection: 'TypedSection', GridSection: 'GridSection', Value, Flag, ListValue, DynamicList, DummyValue },
		poll: { add(fn) { polls.push(fn); } },
		rpc: {
			declare({ object, method }) {
				return (...args) => {
					if (object == 'uci' || /^(pause|resume|fetch)$/.test(method))
						did.push([ `${object}.${method}`, ...args ]);
					let answer = answers[`${object}.${method} ${args.join(' ')}`] ?? answers[`${object}.${method}`];
					/* the plugin reads the file, too; what it has beside changes that are not applied, a test says */
					if (`${object}.${method}` == 'bquic.status' && answer?.constructor == Object && config.bquic && !answers.changes?.bquic)
						answer = { off: [ 'gateway', 'relay' ].filter((role) => !Object.values(config.bquic).some((s) => s['.type'] == role && /^(1|on|yes|true|enabled)$/.test(s.enabled))), ...answer };
					if (answers.expired) /* as LuCI rejects what rpcd answers with -32002 */
						return Promise.reject(Object.assign(new Error('Login session is expired'), { name: 'SessionError' }));
					return answers.away || answer === undefined ? Promise.reject(new Error(`RPC call to ${object}/${method} failed with ubus code 4: Resource not found\n  at handleCallReply (rpc.js:99:3)`)) : Promise.resolve(structuredClone(answer));
				};
			},
			list: (...names) => answers.away ? Promise.reject(new Error('XHR request failed')) : Promise.resolve(Object.fromEntries(names.filter((n) => answers.objects?.includes(n)).map((n) => [ n, {} ])))
		},
		uci: new Uci(),
		ui: {
			/* while it works, the button cannot be pressed */
			createHandlerFn: (self, fn) => (ev) => {
				const button = ev.currentTarget;

				button.disabled = true;

				return Promise.resolve(fn(ev)).finally(() => { button.disabled = false; });
			},
			showIndicator(id, text) { window.indicator = text; },
			hideIndicator() { window.indicator = null; },
			addNotification(title, node) { did.push([ 'notice', node.textContent ]); },
			changes: { changes: answers.changes, init() { this.changes = answers.changes; return Promise.resolve(); }, apply() { did.push([ 'apply' ]); } }
		},
		'tools.widgets': { DeviceSelect }
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

	const apply = () => sections.forEach((s) => s.ids().forEach((id) => s.options.forEach((o) => o.parse(id))));

	return { load, polls, sections, did, apply };
}

if (typeof module != 'undefined')
	module.exports = luci;
