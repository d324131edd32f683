// SPDX-License-Identifier: Apache-2.0
'use strict';
'require baseclass';
'require bquic.ask as ask';
'require uci';
'require ui';

/* What several pages need. LuCI's dom.append() takes a lone string as markup and
   strings in an array as text, so all children here are arrays. */

const SWITCHES = [ 'enabled', 'listing', 'early_data', 'auto', 'ask_peer', 'window_updates', 'fast_pmtu', 'gso', 'exempt_voice' ];
const STARTS = 10000; /* ms that a daemon may take to answer after it was switched on */
const WORDS = { on: '1', yes: '1', 'true': '1', off: '0', no: '0', 'false': '0', enabled: '1', disabled: '0' };

/* Whether a section is switched on, in any of UCI's words. */
function enabled(section) {
	return (WORDS[section?.enabled] ?? section?.enabled) == '1';
}

/* Whether changes are saved and not applied: settings that no daemon has. */
function unapplied(config) {
	return ui.changes.changes?.[config]?.length > 0;
}

/* What wants attention. */
const alert = (...said) => E('p', { 'class': 'alert-message warning' }, [ ...said ]);
const notice = (text) => E('p', { 'class': 'alert-message notice' }, [ text ]);

return baseclass.extend({
	alert: alert,
	enabled: enabled,
	starts: STARTS,
	unapplied: unapplied,

	/* Which daemons are off, by an answer of the router. One that does not tell: those that do not answer. */
	off: (bquic) => Array.isArray(bquic.off) ? bquic.off : [ 'gateway', 'relay' ].filter((role) => !bquic[role]),

	style() {
		return E('link', { 'rel': 'stylesheet', 'href': L.resource('bquic/style.css') });
	},

	/* Asks what is not applied: another page may have saved it. */
	count: () => L.resolveDefault(ui.changes.init()),

	/* A page without a form. */
	page(title, about, ...nodes) {
		return E([], [ this.style(), E('h2', {}, [ title ]), E('div', { 'class': 'cbi-map-descr' }, [ about ]), ...nodes ]);
	},

	/*
	 * Gives a node the children that a poll has drawn anew, if the text differs. If a mouse button or a key is
	 * held down on the node, a later poll does it, or the click would get lost. Keyboard focus
	 * stays on the control in the same place; without one there, on the node.
	 */
	renew(node, children) {
		const fresh = E('div', {}, [ ...children ]);
		const controls = () => [ ...node.querySelectorAll('button, a') ];
		const focused = document.activeElement, place = controls().indexOf(focused);

		if (node.textContent == fresh.textContent || node.querySelector(':active'))
			return;
		node.replaceChildren(...fresh.childNodes);
		if (place < 0)
			return;

		const now = controls()[place];
		const same = now?.localName == focused.localName;

		if (!same)
			node.tabIndex = -1;
		(same ? now : node).focus({ preventScroll: true });
	},

	/* A daemon's text as a text node. */
	text(value) {
		return typeof value == 'string' || typeof value == 'number' ? String(value) : '–';
	},

	/* Explains a failed call: whether its package is missing, and what to do. */
	missing(name) {
		return [
			E('p', {}, [ _('The package %s is not installed.').format(name) ]),
			E('p', {}, [ _('Get it from the same source as these pages: a feed, or a file for this router’s architecture.') ]),
			E('p', {}, [ E('a', { 'href': `${L.url('admin/system/package-manager')}?query=${name}` }, [ _('Install it') ]) ])
		];
	},

	/* Switched on, but no daemon answers. */
	silent(service, device) {
		return [
			device ? E('p', {}, [ _('It is waiting for the device %s, or has stopped. The system log says why, in lines that contain %s.').format(device, service) ])
				: E('p', {}, [ _('It is switched on but does not answer. The system log says why, in lines that contain %s.').format(service) ]),
			E('p', {}, [ E('a', { 'href': L.url('admin/services/bquic/log') }, [ _('Open the log') ]) ])
		];
	},

	/* What keeps a configuration from being used: changes that are not applied, and mistakes, by the daemons' own check of /etc/config. */
	mistakes(config) {
		const node = E('div', { 'aria-live': 'polite' }), waits = E('div', { 'aria-live': 'polite' });
		const of = {
			bquic: () => ask.mistakes().then((c) => ask.list(c?.mistakes).map((m) =>
				(m.line ? _('line %d').format(m.line) + ': ' : '') + ask.list([ m.section, m.option ]).map((x) => this.text(x)).join('.') + (m.section ? ': ' : '') + this.text(m.text))),
			wifirr: () => ask.schedulerMistakes().then((c) => ask.list(c?.mistakes).map((m) => this.text(m)))
		};
		const refresh = () => of[config]().then((lines) => this.renew(node, lines.length ? [
			E('div', { 'class': 'alert-message warning' }, [
				E('strong', {}, [ _('Mistakes in /etc/config/%s: running daemons keep their previous settings').format(config) ]),
				E('ul', { 'class': 'bquic-list' }, lines.map((line) => E('li', {}, [ line ])))
			])
		] : []));

		ask.every(2, () => Promise.resolve(this.renew(waits, unapplied(config)
			? [ notice(_('Changes of /etc/config/%s are saved but not applied: the daemons do not have them yet.').format(config)) ] : [])));
		ask.every(30, refresh); /* which costs a slow router most */

		return E('div', {}, [ waits, node ]);
	},

	/* A daemon that has rejected its new configuration continues with the old one. */
	refused(st) {
		return st?.reload?.error ? [ alert(E('strong', {}, [ _('The last change was refused; the previous settings stay in use:') ]), ' ', this.text(st.reload.error)) ] : [];
	},

	/* What keeps a running daemon from working well, in its own words. */
	warned(st) {
		return st?.warning ? [ alert(E('strong', {}, [ _('It works less well than it could:') ]), ' ', this.text(st.warning)) ] : [];
	},

	/* The file of a form. Notices that somebody else changes it. again(): the form was drawn anew, with what is in the file. */
	follow(config) {
		const node = E('div', { 'aria-live': 'polite' }), file = new uci.constructor();
		let drawn = null;
		const say = (changed) => this.renew(node, changed ? [ notice(_('These settings were changed elsewhere: reload this page to see them.')) ] : []);

		return {
			node,
			again() { drawn = null; say(false); },

			/* Its sections of a type; null: it cannot be read now. */
			sections: (type) => {
				file.unload(config);

				/* in this order: what is saved in between is neither applied nor somebody else's */
				return Promise.all([ file.load(config), this.count() ]).then(() => {
					const now = JSON.stringify(file.sections(config));

					drawn ??= now;
					say(now != drawn && !unapplied(config));

					return file.sections(config, type);
				}, () => null);
			}
		};
	},

	/* A form's page. find() resolves to a function from a section to its daemon's status, or to { instead }: a state, and why. */
	form(view, m, type, find, ...more) {
		/* LuCI's own shows what was there when the page was opened */
		view.handleReset = () => view.load().then(() => m.load()).then(() => m.reset());

		return m.render().then((map) => {
			this.inUse(map, m.config, type, find);

			return E([], [ this.style(), map, ...more ]);
		});
	},

	/* Shows whether the applied configuration is in use. */
	inUse(map, config, type, find) {
		const node = E('div', { 'aria-live': 'polite' }), file = this.follow(config), wrong = E('div', {}, [ this.mistakes(config), file.node ]);
		const line = (kind, text) => E('p', { 'class': `bquic-state ${kind}` }, [ text ]);
		const opened = Date.now(); /* by LuCI itself after Save & Apply */
		const one = (s, st) => {
			const at = new Date(st?.reload?.at ?? NaN), on = unapplied(config) ? st : enabled(s);

			if (st?.instead)
				return [ line('', st.instead[0]), st.instead[1] ];
			if (!st && on && Date.now() - opened < STARTS)
				return [ line('', _('Waiting for an answer…')) ];
			if (!st)
				return on ? [ line('bad', _('no answer')), ...this.silent(config, s.device) ] : [ line('', _('off')) ];
			if (st.reload?.error)
				return [ ...this.refused(st), ...this.warned(st) ];
			if (!on || st.stopping || st.present === false)
				return [ line('', on && !st.stopping ? _('waits for its device, which does not exist now') : _('is stopping')) ];

			return [
				/* the init script tells running daemons nothing of a file with mistakes */
				line('on', wrong.textContent ? _('running')
					: isNaN(at) ? _('runs with these settings') : _('runs with these settings, since %s').format(at.toLocaleString())),
				...this.warned(st)
			];
		};

		ask.every(5, () => Promise.all([ find(), file.sections(type) ]).then(([ found, sections ]) => {
			const all = sections?.flatMap((s) => [ ...s.device ? [ E('strong', {}, [ s.device ]) ] : [], ...one(s, found(s)) ]);

			if (all)
				this.renew(node, all.length ? all : [ line('', _('off')) ]);
		}));

		const card = E('div', { 'class': 'cbi-section bquic-card' }, [ node, wrong ]);
		const place = () => map.insertBefore(card, map.querySelector('.cbi-map-descr')?.nextSibling ?? map.firstChild);

		/* LuCI draws all that is in the map anew after Save, and when a section was added or removed */
		new MutationObserver(() => {
			if (card.parentNode != map) {
				file.again();
				place();
			}
		}).observe(map, { childList: true });
		place();
	},

	/* Resolves to true if there is a readable configuration file: the package is installed, or was. */
	loadConfig(name) {
		return uci.load(name).then(() => true, () => false);
	},

	/* Reads it again: another page, or somebody else, may have changed it. Rejects as ask.answer() does. */
	reread(name) {
		uci.unload(name);

		return ask.answer('uci', uci.load(name).then(() => true)).then((have) => !!have);
	},

	/* The same for a form, which knows only 1 and 0: it would show UCI's other words as off, and save that. A section of this type is always there. */
	loadForm(name, type) {
		uci.unload(name);

		return this.loadConfig(name).then((have) => {
			if (have && type && !uci.sections(name, type).length)
				uci.add(name, type, type);
			for (const s of have ? uci.sections(name) : [])
				for (const option of SWITCHES)
					if (WORDS[s[option]])
						uci.set(name, s['.name'], option, WORDS[s[option]]);

			return have;
		});
	},

	/* The page of a form that cannot be read: its token is only for who may change it. find() shows what runs. */
	noConfig(view, title, name, find, ...more) {
		view.handleSaveApply = view.handleSave = view.handleReset = null;
		if (find)
			ask.every(5, find);

		return this.page(title, '', alert(L.hasViewPermission() ? _('/etc/config/%s cannot be read: reload this page. If the file is missing, install the package %s again.').format(name.split('-')[0], name)
			: _('Only users who may change these settings can see them, because they contain a secret.')), ...more);
	},

	/* The name of the only section of a type, which may be any; without a section, the usual one. */
	nameOf(type) {
		return uci.sections('bquic', type)[0]?.['.name'] ?? type;
	},

	/* The gateways of the upstream sections that are on, the largest weight first; shown(name): as in a form, which may not be saved yet. */
	upstreams(shown) {
		return uci.sections('bquic', 'upstream').filter((u) => u.gateway && (shown?.(u['.name']) ?? WORDS[u.enabled] ?? u.enabled ?? '1') != '0')
			.sort((a, b) => (b.weight ?? 100) - (a.weight ?? 100)).map((u) => u.gateway);
	}
});
