// SPDX-License-Identifier: Apache-2.0
'use strict';
'require baseclass';
'require bquic.address as address';
'require bquic.ask as ask';
'require dom';
'require form';
'require rpc';
'require uci';
'require ui';

/* What several pages need. LuCI's dom.append() takes a lone string as markup and
   strings in an array as text, so all children here are arrays. */

const callBquicFetch = rpc.declare({ object: 'bquic', method: 'fetch', params: [ 'url', 'pin', 'profile', 'ca' ], reject: true });
const callDevices = rpc.declare({ object: 'network.device', method: 'status' });
const callIwinfoDevices = rpc.declare({ object: 'iwinfo', method: 'devices' });
const callIwinfoInfo = rpc.declare({ object: 'iwinfo', method: 'info', params: [ 'device' ] });
const callIwinfoAssoclist = rpc.declare({ object: 'iwinfo', method: 'assoclist', params: [ 'device' ] });

/* The scheduler's reasons, as wifirrd prints them. With another _ these are not translated. */
function reasons(_) {
	return [
		_('clients with demand: %d, more than %d are needed'),
		_('channel busy %d permille of the time, more than %d is needed'),
		_('needed for %d of %d ms'),
		_('not needed any more for %d of %d ms'),
		_('clients: %d, more than %d'),
		_('clients with demand: %d, more than %d'),
		_('clients with demand: %d, channel busy %d permille of the time, more than %d'),
		_('paused'),
		_('clients aggregate frames: their contention windows do more than turns'),
		_('everybody is served for some seconds, to see whether turns deliver more'),
		_('turns delivered %d kbit/s, serving everybody %d kbit/s'),
		_('airtime weights have no effect on this driver'),
		_('windows are left alone'),
		_('%d kbit/s were delivered with larger windows, %d with own ones'),
		_('for some seconds, to see whether larger ones deliver more'),
		_('clients that contend: %d, %d or more are needed'),
		_('clients that aggregate frames: %d, more than %d are needed'),
		_('channel busy for %d.%d %% of the time, more than %d.%d %% are needed'),
		_('%d.%d %% of the frames to clients are lost, %d.%d %% or more are needed'),
		_('clients that contend: %d')
	];
}

const SWITCHES = [ 'enabled', 'listing', 'early_data', 'auto', 'ask_peer', 'window_updates', 'fast_pmtu', 'gso', 'exempt_voice' ];
const WORDS = { on: '1', yes: '1', 'true': '1', off: '0', no: '0', 'false': '0', enabled: '1', disabled: '0' };

function absolutePath(id, value) {
	return !value || value.startsWith('/') || _('Must be an absolute path.');
}

/* A list in an answer; empty if it is none. */
function list(value) {
	return Array.isArray(value) ? value : [];
}

/* Whether a section is switched on, in any of UCI's words. */
function enabled(section) {
	return (WORDS[section?.enabled] ?? section?.enabled) == '1';
}

/* Whether changes are saved and not applied: then uci tells this session of settings that no daemon has. */
function unapplied(config) {
	return ui.changes.changes?.[config]?.length > 0;
}

/* Map from a device to its radio, as far as iwinfo has told them. */
const radios = new Map();

return baseclass.extend({
	pause: rpc.declare({ object: 'wifirr', method: 'pause', reject: true }),
	resume: rpc.declare({ object: 'wifirr', method: 'resume', reject: true }),
	commit: rpc.declare({ object: 'uci', method: 'commit', params: [ 'config' ], reject: true }),
	list: list,
	enabled: enabled,
	unapplied: unapplied,
	reasons: reasons,

	/* A scheduler's reason in the user's language; other texts unchanged. */
	reason(text) {
		const said = this.text(text), translated = reasons(_);

		for (const [ i, english ] of reasons((s) => s).entries()) {
			const pattern = english.replace('%%', '%').replace('%%', '%').replace(/[.*+?^${}()|[\]\\]/g, '\\$&').replace(/%d/g, '(-?\\d+)');
			const values = said.match(new RegExp(`^${pattern}$`));

			if (values)
				return translated[i].format(...values.slice(1));
		}

		return said;
	},

	/*
	 * The measured gains of a scheduler's levers here, from its trials: a line
	 * for each lever tried. In permille; 1000: as much with it as without.
	 */
	gains(st) {
		const percent = (permille) => Math.round((Math.max(permille, 0) - 1000) / 10); /* the bound of a mean may be below 0 */
		const means = (g) => g.on ? g.low > 1000 ? _('used.') : _('used until it is certain that it gains too little.')
			: g.high < 1000 ? _('not used: more is delivered without it.') : _('not used until it is certain that it gains.');
		const seen = (g) => g.high <= 1000 ? _('Delivered with it: %d %% less (%d to %d), trials: %d.').format(-percent(g.permille), -percent(g.high), -percent(g.low), g.trials)
			: g.low >= 1000 ? _('Delivered with it: %d %% more (%d to %d), trials: %d.').format(percent(g.permille), percent(g.low), percent(g.high), g.trials)
				: _('Delivered with it: between %d %% less and %d %% more, trials: %d.').format(-percent(g.low), percent(g.high), g.trials);

		return [ [ _('Larger windows:'), st?.contention?.gain ], [ _('RTS:'), st?.contention?.rts_gain ], [ _('Turns:'), st?.gain ] ]
			.filter(([ , g ]) => g?.trials > 0 && [ g.permille, g.low, g.high ].every(Number.isInteger))
			.map(([ name, g ]) => E('p', {}, [ E('strong', {}, [ name ]), ' ', means(g), ' ', seen(g) ]));
	},

	style() {
		return E('link', { 'rel': 'stylesheet', 'href': L.resource('bquic/style.css') });
	},

	/*
	 * Gives a node what a poll has drawn anew, if the text differs. If a mouse button or a key is
	 * held down on the node, a later poll does it, or the click would get lost. Keyboard focus
	 * stays on the control in the same place; without one there, on the node.
	 */
	renew(node, fresh) {
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

	absolutePath: absolutePath,

	/* the validate function of an option key; this is the option */
	keyOfCertificate(id, value) {
		return !value == !this.section.formvalue(id, 'certificate') ? absolutePath(id, value) : _('Certificate and key belong together: give both or none.');
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

	/*
	 * The init script starts one daemon for a radio, and skips further sections on it. Resolves to
	 * a function that returns the device whose running scheduler serves a skipped section, too.
	 */
	sharing(schedulers) {
		const running = new Set(list(schedulers).map((st) => st?.device));
		const sections = uci.sections('wifirr', 'scheduler').filter((s) => enabled(s) && s.device && s.match != 'ip');
		const serving = sections.filter((s) => s.backend != 'htb' && running.has(s.device));
		const asked = serving.length && serving.length < sections.length ? sections.filter((s) => !radios.has(s.device)) : [];

		return Promise.all(asked.map(({ device }) => L.resolveDefault(callIwinfoInfo(device), null).then((info) => {
			if (typeof info?.phy == 'string' && info.phy)
				radios.set(device, info.phy);
		}))).then(() => ({ device }) => radios.has(device) && !running.has(device) && sections.some((s) => s.device == device)
			? serving.find((s) => radios.get(s.device) == radios.get(device))?.device : undefined);
	},

	/* The state and the explanation of a section that is served by the scheduler of this device. */
	together(device) {
		return [ _('no scheduler beside that of %s').format(device), E('p', {}, [ _('Their WiFi hardware has one scheduler, which serves all access points of its radio. The settings for this device have no effect.') ]) ];
	},

	/* What keeps a configuration from being used: changes that are not applied, and mistakes, by the daemons' own check of /etc/config. */
	mistakes(config) {
		const node = E('div', { 'aria-live': 'polite' }), waits = E('div', { 'aria-live': 'polite' });
		const of = {
			bquic: () => ask.mistakes().then((c) => list(c?.mistakes).map((m) =>
				(m?.line ? _('line %d').format(m.line) + ': ' : '') + [ m?.section, m?.option ].filter((x) => x).map((x) => this.text(x)).join('.') + (m?.section ? ': ' : '') + this.text(m?.text))),
			wifirr: () => ask.schedulerMistakes().then((c) => list(c?.mistakes).map((m) => this.text(m)))
		};
		const refresh = () => of[config]().then((lines) => this.renew(node, E('div', {}, [ ...lines.length ? [
			E('div', { 'class': 'alert-message warning' }, [
				E('h4', {}, [ _('Mistakes in /etc/config/%s: running daemons keep their previous settings').format(config) ]),
				E('ul', { 'class': 'bquic-list' }, lines.map((line) => E('li', {}, [ line ])))
			])
		] : [] ])));

		ask.every(2, () => Promise.resolve(this.renew(waits, E('div', {}, [ ...unapplied(config) ? [
			E('p', { 'class': 'alert-message notice' }, [ _('Changes are saved but not applied: the daemons do not have them yet.') ])
		] : [] ]))));
		ask.every(10, refresh);

		return E('div', {}, [ waits, node ]);
	},

	/* A daemon that has rejected its new configuration continues with the old one. */
	refused(st) {
		return st?.reload?.error ? [ E('p', { 'class': 'alert-message warning' }, [
			E('strong', {}, [ _('The last change was refused; the previous settings stay in use:') ]), ' ', this.text(st.reload.error)
		]) ] : [];
	},

	/* What keeps a running daemon from working well, in its own words. */
	warned(st) {
		return st?.warning ? [ E('p', { 'class': 'alert-message warning' }, [
			E('strong', {}, [ _('It works less well than it could:') ]), ' ', this.text(st.warning)
		]) ] : [];
	},

	/* Notices that somebody else, or another page, changes the file that a form shows. again(): the form was drawn anew, with what is in the file. */
	elsewhere(config) {
		const node = E('div', { 'aria-live': 'polite' }), file = new uci.constructor();
		let drawn = null;
		const say = (changed) => this.renew(node, E('div', {}, [ ...changed ? [
			E('p', { 'class': 'alert-message notice' }, [ _('These settings were changed elsewhere: reload this page to see them.') ])
		] : [] ]));

		ask.every(10, () => {
			file.unload(config);

			return file.load(config).then(() => {
				const now = JSON.stringify(file.sections(config));

				drawn ??= now;
				say(now != drawn);
			}, () => {}); /* as long as it cannot be read */
		});

		return { node, again() { drawn = null; say(false); } };
	},

	/* Shows on a settings page whether the applied configuration is in use: find() resolves to a function from a section to its daemon's status, or to { together: device }. */
	inUse(map, config, sections, find) {
		const node = E('div', { 'aria-live': 'polite' }), elsewhere = this.elsewhere(config), wrong = E('div', {}, [ this.mistakes(config), elsewhere.node ]);
		const line = (kind, text) => E('p', { 'class': `bquic-state ${kind}` }, [ text ]);
		const one = (s, st) => {
			const at = new Date(st?.reload?.at ?? NaN), on = unapplied(config) ? st : s.enabled == '1';

			if (st?.together) {
				const [ state, why ] = this.together(st.together);

				return [ line('', state), why ];
			}
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

		ask.every(5, () => find().then((found) => this.renew(node, E('div', {},
			sections().flatMap((s) => [ ...s.device ? [ E('strong', {}, [ s.device ]) ] : [], ...one(s, found(s)) ])))));

		const card = E('div', { 'class': 'cbi-section bquic-card' }, [ node, wrong ]);
		const place = () => map.insertBefore(card, map.querySelector('.cbi-map-descr')?.nextSibling ?? map.firstChild);

		/* LuCI draws all that is in the map anew after Save, and when a section was added or removed */
		new MutationObserver(() => {
			if (card.parentNode != map) {
				elsewhere.again();
				place();
			}
		}).observe(map, { childList: true });
		place();
	},

	/* Resolves to true if there is a readable configuration file: the package is installed, or was. */
	loadConfig(name) {
		return uci.load(name).then(() => true, () => false);
	},

	/* Reads it again: another page, or somebody else, may have changed it. */
	reread(name) {
		uci.unload(name);

		return this.loadConfig(name);
	},

	/* The same for a form, which knows only 1 and 0: it would show UCI's other words as off, and save that. */
	loadForm(name) {
		return this.loadConfig(name).then((have) => {
			for (const s of have ? uci.sections(name) : [])
				for (const option of SWITCHES)
					if (WORDS[s[option]])
						uci.set(name, s['.name'], option, WORDS[s[option]]);

			return have;
		});
	},

	/* Replaces a form whose configuration cannot be read: its token is only for users who may change it. */
	noConfig(view, name) {
		view.handleSaveApply = view.handleSave = view.handleReset = null;

		return E('div', { 'class': 'cbi-map' }, [
			E('div', { 'class': 'alert-message warning' }, [ ...L.hasViewPermission() ? this.missing(name)
				: [ E('p', {}, [ _('Only users who may change these settings can see them, because they contain a secret.') ]) ] ])
		]);
	},

	/* [ { device, ssid } ] of the access points. From iwinfo which, unlike network.wireless, does not expose WiFi keys. */
	accessPoints() {
		return L.resolveDefault(callIwinfoDevices(), null).then((answer) => Promise.all(
			list(answer?.devices).map((device) =>
				L.resolveDefault(callIwinfoInfo(device), null).then((info) => ({ device, mode: info?.mode, ssid: info?.ssid })))
		)).then((found) => found.filter((ap) => ap.mode == 'Master'));
	},

	/* [ { mac, signal } ] of all clients of these access points */
	stations(aps) {
		return Promise.all(aps.map((ap) => L.resolveDefault(callIwinfoAssoclist(ap.device), null)))
			.then((answers) => answers.flatMap((answer) => list(answer?.results)).filter((s) => typeof s?.mac == 'string'));
	},

	/* Names of all network devices. */
	devices() {
		return L.resolveDefault(callDevices(), null).then((found) => Object.keys(found ?? {}).filter((name) => name != 'lo').sort());
	},

	/* Map of host names, by MAC and IP address in lower case */
	hostNames() {
		return ask.hostHints().then((hints) => {
			const names = new Map();

			for (const [ mac, hint ] of Object.entries(hints ?? {}))
				for (const address of hint?.name ? [ mac, hint.ipaddrs ?? [], hint.ip6addrs ?? [] ].flat() : [])
					names.set(String(address).toLowerCase(), String(hint.name));

			return names;
		});
	},

	/* text(): what is copied when the button is pressed */
	copyButton(text) {
		return E('button', {
			'type': 'button',
			'class': 'btn cbi-button',
			'aria-live': 'polite',
			'click': (ev) => {
				/* the clipboard API needs HTTPS, which most routers lack */
				const button = ev.currentTarget;
				const field = E('textarea', { 'style': 'position:fixed;opacity:0' });

				field.value = text();
				document.body.append(field);
				field.select();
				button.textContent = !field.value ? _('Nothing to copy.')
					: document.execCommand('copy') ? _('Copied.') : _('The browser does not allow copying.');
				field.remove();
				button.focus();
				setTimeout(() => { button.textContent = _('Copy'); }, 2000);
			}
		}, [ _('Copy') ]);
	},

	/* The name of the only section of a type, which may be any; without a section, the usual one. */
	nameOf(type) {
		return uci.sections('bquic', type)[0]?.['.name'] ?? type;
	},

	/* The gateways of the upstream sections that are on, the largest weight first; shown(name): as in a form, which may not be saved yet. */
	upstreams(shown) {
		return uci.sections('bquic', 'upstream').filter((u) => u.gateway && (shown?.(u['.name']) ?? WORDS[u.enabled] ?? u.enabled ?? '1') != '0')
			.sort((a, b) => (b.weight ?? 100) - (a.weight ?? 100)).map((u) => u.gateway);
	},

	/*
	 * A button that loads a URL through this router's own HTTP/3 client. target() returns
	 * { url, pins, profile, ca }, or { reason }: why there is nothing to load. The client takes only
	 * one pin. If the server has another key, and that key is one of the pins, it tries that one.
	 */
	testButton(target) {
		const result = E('div', { 'aria-live': 'polite' });
		const warn = (text) => dom.content(result, [ E('p', { 'class': 'alert-message warning' }, [ text ]) ]);
		const button = E('button', {
			'type': 'button',
			'class': 'btn cbi-button cbi-button-action',
			'disabled': L.hasViewPermission() ? null : '',
			'click': ui.createHandlerFn(this, () => {
				const { url, pins, profile, ca, reason } = target();
				const load = (pin, last) => callBquicFetch(url, pin ?? '', profile ?? '', ca ?? '').then((answer) => {
					const [ , key ] = String(answer?.error ?? '').match(/wrong pin: the server's key is (sha256\/\S+)/) ?? [];

					return !last && key != pin && pins?.includes(key) ? load(key, true) : answer;
				});

				if (reason) {
					warn(reason);
					return Promise.resolve();
				}
				dom.content(result, [ E('em', { 'class': 'spinning' }, [ _('Loading %s').format(url) ]) ]);

				return load(pins?.[0]).then((answer) => {
					const r = answer?.result;

					if (!r) {
						warn(answer?.error ? this.text(answer.error) : _('No answer.'));
						return;
					}
					dom.content(result, [ E('p', {}, [
						_('%s answered with status %d: %d bytes at %.2f Mbit/s, handshake %.1f ms, %.1f packets per acknowledgement.')
							.format(this.text(r.url), r.status, r.bytes, r.mbps, r.handshake_ms, r.data_per_ack)
					]) ]);
				}).catch((err) => warn(ask.wrong(err)));
			})
		}, [ _('Test from here') ]);

		return E('div', {}, [ button, ' ', result ]);
	},

	/* As peer.ParseToken has it: a token, or its hash. */
	kept(id, value) {
		return !value || /^sha256:[0-9A-F]{64}$/i.test(value) || !/^sha256:/i.test(value) && /^[!-~]{8,256}$/.test(value)
			|| _('Must be sha256: and 64 hexadecimal digits, or 8 to 256 printable ASCII characters without spaces.');
	},

	/*
	 * A secret shared by both sides. The gateway's page can make one, 24 random bytes,
	 * URL-safe, and copy it: browsers copy nothing from a field that shows dots.
	 */
	tokenOption(section, tab, generates, title, description) {
		const copy = this.copyButton;
		const o = section.taboption(tab, form.Value, 'token', title, description);

		o.password = true;
		o.datatype = 'rangelength(8,256)';
		o.validate = generates ? this.kept : (id, value) => /^sha256:/i.test(value) ? _('This is the hash of a token: enter the token itself.')
			: /^[!-~]*$/.test(value) || _('Only printable ASCII characters without spaces are allowed.');
		o.renderWidget = function(id, index, value) {
			const node = form.Value.prototype.renderWidget.call(this, id, index, value);
			if (!generates)
				return node;

			const generate = E('button', {
				'type': 'button',
				'class': 'btn cbi-button',
				'disabled': this.readonly ?? this.map.readonly ? '' : null,
				'click': () => {
					const bytes = crypto.getRandomValues(new Uint8Array(24));
					this.getUIElement(id).setValue(btoa(String.fromCharCode(...bytes)).replace(/\+/g, '-').replace(/\//g, '_'));
				}
			}, [ _('Generate') ]);

			return E('div', {}, [ node, ' ', generate, ' ', copy(() => this.formvalue(id) ?? '') ]);
		};

		return o;
	},

	/* An address is required: only the operator decides who can read metrics. */
	metricsOption(section, tab, placeholder) {
		const o = section.taboption(tab, form.Value, 'metrics', _('Metrics'), _('Address and port that serve the Prometheus metrics, for example %s; empty: none.').format(placeholder));

		o.validate = (id, value) => !value || address.withPort(value, /^[0-9.]+$/) || _('Must be address:port, for example 127.0.0.1:9464.');

		return o;
	},

	logOptions(section, tab) {
		const level = section.taboption(tab, form.ListValue, 'log_level', _('Log level'), _('How much detail goes to the system log.'));

		for (const word of [ 'debug', 'info', 'warn', 'error' ])
			level.value(word);
		level.default = 'info';

		return level;
	}
});
