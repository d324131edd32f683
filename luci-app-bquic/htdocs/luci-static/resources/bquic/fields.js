// SPDX-License-Identifier: Apache-2.0
'use strict';
'require baseclass';
'require bquic.address as address';
'require bquic.ask as ask';
'require bquic.common as common';
'require bquic.graph as graph';
'require dom';
'require form';
'require rpc';
'require ui';

/* Fields and buttons that forms have in common. */

const callBquicFetch = rpc.declare({ object: 'bquic', method: 'fetch', params: [ 'url', 'pin', 'profile', 'ca' ], reject: true });

function absolutePath(id, value) {
	return !value || value.startsWith('/') || _('Must be an absolute path.');
}

return baseclass.extend({
	absolutePath: absolutePath,

	/* the validate function of an option key; this is the option */
	keyOfCertificate(id, value) {
		return !value == !this.section.formvalue(id, 'certificate') ? absolutePath(id, value) : _('Certificate and key belong together: give both or none.');
	},

	/* The validate function of a list that needs a value: of an empty one, LuCI's dialogues say nothing. */
	some: (name, check) => function(id, value) {
		return value || [ this.section.formvalue(id, name) ?? [] ].flat().length ? check?.(id, value) ?? true : _('Must not be empty.');
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

	/*
	 * A button that loads a URL through this router's own HTTP/3 client. target() returns
	 * { url, pins, profile, ca }, or { reason }: why there is nothing to load. The client takes only
	 * one pin. If the server has another key, and that key is one of the pins, it tries that one.
	 */
	testButton(target) {
		const result = E('div', { 'aria-live': 'polite' });
		const warn = (text) => dom.content(result, [ common.alert(text) ]);
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
						warn(answer?.error ? String(answer.error) : _('No answer.'));
						return;
					}
					dom.content(result, [ E('p', {}, [
						_('%s answered with status %d: %d bytes at %s, handshake %s, %s packets per acknowledgement.')
							.format(r.url, r.status, r.bytes, graph.format(graph.sane(1e6 * r.mbps), 'bit/s'), graph.format(graph.sane(r.handshake_ms), 'ms'), graph.format(graph.sane(r.data_per_ack)))
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
		o.validate = generates ? this.kept : function(id, value) {
			if (!value)
				return this.section.formvalue(id, 'enabled') != '1' || _('A relay that is switched on needs a token.');

			return /^sha256:/i.test(value) ? _('This is the hash of a token: enter the token itself.')
				: /^[!-~]+$/.test(value) || _('Only printable ASCII characters without spaces are allowed.');
		};
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
	},

	/* An address is required: only the operator decides who can read metrics. */
	metricsOption(section, placeholder) {
		const o = section.taboption('advanced', form.Value, 'metrics', _('Metrics'), _('Address and port that serve the Prometheus metrics, for example %s; empty: none.').format(placeholder));

		o.validate = (id, value) => !value || address.withPort(value, /^[0-9.]+$/) || _('Must be address:port, for example 127.0.0.1:9464.');
	},

	logOptions(section) {
		const level = section.taboption('advanced', form.ListValue, 'log_level', _('Log level'), _('How much detail goes to the system log.'));

		for (const word of [ 'debug', 'info', 'warn', 'error' ])
			level.value(word);
		level.default = 'info';
	}
});
