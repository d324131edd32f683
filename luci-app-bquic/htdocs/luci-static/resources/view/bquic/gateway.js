// SPDX-License-Identifier: Apache-2.0
'use strict';
'require bquic.common as common';
'require dom';
'require form';
'require uci';
'require view';

return view.extend({
	load() {
		return Promise.all([ common.loadConfig('bquic'), common.profiles() ]);
	},

	render([ have, known ]) {
		if (!have)
			return common.noConfig(this, 'bquic-gateway');

		const m = new form.Map('bquic', _('Gateway'), _('Stands where the mesh meets the Internet or a server: serves sites by HTTP/3, and TCP connections for relays.'));
		let s, o;

		if (!uci.get('bquic', 'gateway'))
			uci.add('bquic', 'gateway', 'gateway');

		s = m.section(form.NamedSection, 'gateway', 'gateway');
		s.tab('general', _('General'));
		s.tab('relays', _('Relays'));
		s.tab('advanced', _('Advanced'));

		o = s.taboption('general', form.Flag, 'enabled', _('Enabled'));
		o.rmempty = false;

		o = s.taboption('general', form.Value, 'listen', _('Listen on'), _('Address and port, UDP and TCP; without an address: all. For browsers that come by name take :443, and move LuCI elsewhere first.'));
		o.placeholder = ':8443';
		o.validate = (id, value) => !value || /^(\[[0-9A-Fa-f:.]+\]|[0-9.]*):([1-9][0-9]{0,4})$/.test(value) && +value.split(':').pop() < 65536
			|| _('Must be [address]:port, for example :8443 or 192.0.2.1:443.');

		o = s.taboption('general', form.DynamicList, 'mesh', _('WiFi clients'), _('Prefixes of the clients that come over WiFi. The firewall lets them in.'));
		o.datatype = 'or(cidr,ipaddr("nomask"))';
		o.placeholder = '10.0.0.0/8';

		common.profileOption(s, 'advanced', 'mesh_profile', known, _('Profile of WiFi clients'), _('All others get the stock profile.'));

		o = s.taboption('general', form.DummyValue, '_pin', _('Pin of the certificate'));
		o.renderWidget = () => {
			const node = E('div', {}, [ E('em', {}, [ _('shown while the gateway runs') ]) ]);

			/* the page does not wait for it */
			common.status().then((st) => {
				const pin = st?.gateway?.pin;

				if (pin)
					dom.content(node, [ E('code', { 'style': 'overflow-wrap:anywhere' }, [ String(pin) ]), ' ', common.copyButton(String(pin)) ]);
			}).catch(() => null);

			return node;
		};
		o.description = _('What relays and clients check instead of a certificate authority.');

		o = s.taboption('general', form.DummyValue, '_test', _('Test'));
		o.renderWidget = () => {
			const url = E('input', { 'type': 'text', 'class': 'cbi-input-text', 'aria-label': _('URL'),
				'value': `https://localhost:${(uci.get('bquic', 'gateway', 'listen') ?? ':8443').split(':').pop()}/` });
			let pin = '';

			common.status().then((st) => { pin = st?.gateway?.pin ?? ''; }).catch(() => null);

			return E('div', {}, [ url, ' ', common.testButton(() => ({
				url: url.value,
				pin: /^https:\/\/(localhost|127\.|\[::1\])/.test(url.value) ? pin : ''
			})) ]);
		};
		o.description = _('Loads a URL with this router’s own HTTP/3 client.');

		common.tokenOption(s, 'relays', true, _('Token'), _('Secret that relays share: copy it to their settings. Relays with names have their own, below.'));

		o = s.taboption('relays', form.DynamicList, 'connect_from', _('Relays may come from'), _('Prefixes; none: as the WiFi clients.'));
		o.datatype = 'or(cidr,ipaddr("nomask"))';

		o = s.taboption('relays', form.DynamicList, 'connect_to', _('Their clients may go to'),
			_('Prefixes; none: anywhere public. Private, reserved and local addresses, and this router’s own, only when a prefix names them.'));
		o.datatype = 'or(cidr,ipaddr("nomask"))';

		o = s.taboption('advanced', form.Value, 'certificate', _('Certificate'), _('PEM file with the chain; empty: self-signed, made at the first start.'));
		o.datatype = 'file';
		o.placeholder = _('self-signed');
		o = s.taboption('advanced', form.Value, 'key', _('Key'), _('PEM file with the key of the certificate.'));
		o.datatype = 'file';
		o.placeholder = _('self-signed');
		o.validate = common.keyOfCertificate;
		o = s.taboption('advanced', form.Value, 'max_connections', _('Connections'), _('QUIC and TCP connections at a time; one address may have a quarter of them.'));
		o.datatype = 'range(1,100000)';
		o.placeholder = '1000';
		o = s.taboption('advanced', form.Value, 'memory', _('Memory (MiB)'), _('Ceiling of the gateway’s memory; 0: a quarter of the router’s, at least 32.'));
		o.datatype = 'range(0,65536)';
		o.placeholder = '0';
		o = s.taboption('advanced', form.Value, 'access_log', _('Access log'), _('File for a line about each request, for example /var/log/bquic/access.log; empty: none.'));
		o.validate = common.absolutePath;
		o = s.taboption('advanced', form.Value, 'redirect', _('Redirect'), _('Address and port, for example :80: sends those who come without TLS to the same site with it; empty: none.'));
		o.validate = (id, value) => !value || /^(\[[0-9A-Fa-f:.]+\]|[0-9.]*):([1-9][0-9]{0,4})$/.test(value) && +value.split(':').pop() < 65536
			|| _('Must be [address]:port, for example :8443 or 192.0.2.1:443.');
		o = s.taboption('advanced', form.Value, 'acme_webroot', _('ACME webroot'), _('Directory below which .well-known/acme-challenge/ has the challenges; empty: the site’s.'));
		o.validate = common.absolutePath;
		common.metricsOption(s, 'advanced', '127.0.0.1:9464');
		o = s.taboption('advanced', form.Value, 'state_dir', _('State directory'), _('Where the self-signed certificate is kept.'));
		o.validate = common.absolutePath;
		o.placeholder = '/etc/bquic';
		o = s.taboption('advanced', form.Value, 'status_socket', _('Status socket'));
		o.validate = common.absolutePath;
		o.placeholder = '/var/run/bquic/gateway.sock';
		common.logOptions(s, 'advanced');

		s = m.section(form.GridSection, 'site', _('Sites'), _('What the gateway serves: files of this router, or a server behind it.'));
		s.anonymous = true;
		s.addremove = true;
		s.sortable = true;
		s.nodescriptions = true;

		s.modaltitle = () => _('Site');

		o = s.option(form.DynamicList, 'host', _('Host names'), _('Names of the site; * for all that no other site has.'));
		o.datatype = 'or("*",hostname,ipaddr("nomask"))';
		o.rmempty = false;
		o = s.option(form.Value, 'root', _('Directory'), _('With the site’s files. Or else give servers.'));
		o.datatype = 'directory';
		o = s.option(form.DynamicList, 'origin', _('Servers'), _('http:// or https://, host and port. Of several, the next one that is well is asked.'));
		o.validate = function(id, value) {
			/* value: what is being typed; the others are in the list */
			const servers = value || [ this.section.formvalue(id, 'origin') ?? [] ].flat().length;

			if (!servers == !this.section.formvalue(id, 'root'))
				return _('Give a directory or servers, one of them.');

			return !value || /^https?:\/\/[^\s/?#@]+(\/[^\s?#]*)?$/.test(value) || _('Must be http:// or https://, host and port.');
		};

		o = s.option(form.Flag, 'listing', _('Listing'), _('Shows what is in a directory without index.html.'));
		o.modalonly = true;
		o = s.option(form.Flag, 'early_data', _('Early data'), _('The servers know Early-Data (RFC 8470): they get requests in 0-RTT packets at once.'));
		o.modalonly = true;
		o = s.option(form.Value, 'origin_ca', _('Authorities of the servers'), _('PEM file with the certificates of those who sign the servers’; empty: the system’s.'));
		o.datatype = 'file';
		o.modalonly = true;
		o = s.option(form.Value, 'certificate', _('Certificate'), _('PEM file with the chain, for these names; empty: the gateway’s.'));
		o.datatype = 'file';
		o.modalonly = true;
		o.validate = function(id, value) {
			return !value || ![ this.section.formvalue(id, 'host') ?? [] ].flat().includes('*')
				|| _('A site with the host name * has the gateway’s certificate.');
		};
		o = s.option(form.Value, 'key', _('Key'), _('PEM file with the key of the certificate.'));
		o.datatype = 'file';
		o.modalonly = true;
		o.validate = common.keyOfCertificate;

		s = m.section(form.GridSection, 'peer', _('Relays with names'),
			_('Each has tokens and limits of its own. Who is taken out, or loses a token, loses its tunnels at once, and nobody else does.'));
		s.addremove = true;
		s.nodescriptions = true;
		s.modaltitle = (id) => _('Relay %s').format(id);
		s.sectiontitle = (id) => id;

		o = s.option(form.Flag, 'enabled', _('Enabled'));
		o.default = '1';
		o.rmempty = false;
		o.editable = true;
		o = s.option(form.DynamicList, 'token', _('Tokens'), _('Secrets that the relay may show, or their hashes: “bquic token” makes both. Several are valid at a time, so that one can be replaced.'));
		o.validate = (id, value) => !value || /^sha256:[0-9A-Fa-f]{64}$/.test(value) || !/^sha256:/i.test(value) && /^[!-~]{8,256}$/.test(value)
			|| _('Must be sha256: and 64 hexadecimal digits, or 8 to 256 printable ASCII characters without spaces.');
		o.rmempty = false;
		o.modalonly = true;
		o = s.option(form.DynamicList, 'prefix', _('May come from'), _('Prefixes; none: as all relays.'));
		o.datatype = 'or(cidr,ipaddr("nomask"))';
		o = s.option(form.Value, 'tunnels', _('Tunnels'), _('At a time; empty: a fair share of all.'));
		o.datatype = 'range(1,65536)';
		o = s.option(form.Value, 'rate', _('Rate (Mbit/s)'), _('Limit of all its tunnels together, in each direction; empty: none.'));
		o.datatype = 'range(1,100000)';

		common.profileSection(m, known);

		return m.render().then((node) => {
			common.inUse(node, 'bquic', () => uci.sections('bquic', 'gateway'), () => common.status().then((st) => () => st?.gateway));

			return E([], [ common.style(), node ]);
		});
	}
});
