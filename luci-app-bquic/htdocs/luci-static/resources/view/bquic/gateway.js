// SPDX-License-Identifier: Apache-2.0
'use strict';
'require bquic.address as address';
'require bquic.ask as ask';
'require bquic.common as common';
'require bquic.fields as fields';
'require bquic.graph as graph';
'require bquic.profile as profile';
'require bquic.table as table';
'require dom';
'require form';
'require uci';
'require view';

const listen = (id, value) => !value || address.withPort(value, /^[0-9.]*$/) || _('Must be [address]:port, for example :8443 or 192.0.2.1:443.');

/* A table's cell for an option that limits something: LuCI writes "none" where it is not set. */
function unless(name, text) {
	return (id) => E('span', {}, [ [ uci.get('bquic', id, name) ?? [] ].flat().join(' ') || text ]);
}

return view.extend({
	load() {
		return Promise.all([ common.loadForm('bquic', 'gateway'), profile.known() ]);
	},

	render([ have, known ]) {
		const shown = E('div', {}, [ E('em', {}, [ _('shown while the gateway runs') ]) ]), now = this.state();
		let pin = '';

		/* a gateway that has just been switched on has a pin some seconds later */
		const showPin = (found) => {
			if (typeof found != 'string' || found == pin)
				return;
			pin = found;
			dom.content(shown, [ E('code', { 'style': 'overflow-wrap:anywhere' }, [ pin ]), ' ', fields.copyButton(() => pin) ]);
		};

		const find = () => ask.status().then((st) => {
			showPin(st?.gateway?.pin);
			now.show(st?.gateway);

			return () => st?.gateway;
		});

		if (!have)
			return common.noConfig(this, _('Gateway'), 'bquic-gateway', find, now.node);

		const m = new form.Map('bquic', _('Gateway'), _('The gateway stands where the mesh meets the Internet or a server. It serves web sites over HTTP/3, and makes the TCP connections that relays ask for.'));
		const name = common.nameOf('gateway');
		let s, o;

		s = m.section(form.NamedSection, name, 'gateway');
		s.tab('general', _('General'));
		s.tab('relays', _('Relays'));
		s.tab('advanced', _('Advanced'));

		o = s.taboption('general', form.Flag, 'enabled', _('Enabled'), _('Starts the gateway.'));
		o.rmempty = false;

		o = s.taboption('general', form.Value, 'listen', _('Listen on'), _('Address and port on which the gateway listens, UDP and TCP; without an address, on all of them. To serve browsers by name, move LuCI to another port and take :443.'));
		o.placeholder = ':8443';
		o.validate = listen;

		o = s.taboption('general', form.DynamicList, 'mesh', _('WiFi clients'), _('Address prefixes of the clients that come over WiFi; the firewall lets them in.'));
		o.validate = address.prefix;
		o.placeholder = '10.0.0.0/8';

		profile.option(s, 'mesh_profile', known, _('Profile of WiFi clients'), _('How the gateway sends to WiFi clients; all other clients get the profile “standard”.'));

		o = s.taboption('general', form.DummyValue, '_pin', _('Pin of the certificate'));
		o.renderWidget = () => shown;
		o.description = _('Copy it to the relays: they recognise the gateway by it, without a certificate authority.');

		o = s.taboption('general', form.DummyValue, '_test', _('Test'));
		o.renderWidget = () => {
			const [ , host, port ] = (uci.get('bquic', name, 'listen') ?? '').match(/^(.*):(\d+)$/) ?? [ '', '', '8443' ];
			const own = `https://${[ '', '0.0.0.0', '[::]' ].includes(host) ? 'localhost' : host.replace('%', '%25')}:${port}/`;
			const url = E('input', { 'type': 'text', 'class': 'cbi-input-text', 'aria-label': _('URL'), 'value': own });

			return E('div', {}, [ url, ' ', fields.testButton(() => ({
				url: url.value,
				pins: url.value.startsWith(own) || /^https:\/\/(localhost|127\.|\[::1\])/.test(url.value) ? [ pin ] : []
			})) ]);
		};
		o.description = _('Loads a URL with this router’s own HTTP/3 client.');

		fields.tokenOption(s, 'relays', true, _('Token'), _('Secret of all relays that have no name below: copy it to their settings. Without a token here or below, the gateway serves no relay.'));

		o = s.taboption('relays', form.DynamicList, 'connect_from', _('Relays may connect from'), _('Address prefixes that relays may connect from; empty: those of the WiFi clients.'));
		o.validate = address.prefix;

		o = s.taboption('relays', form.DynamicList, 'connect_to', _('Their clients may connect to'),
			_('Address prefixes that the relays’ clients may connect to; empty: all public addresses. Private, reserved and local addresses, and this router’s own, are open only if a prefix names them.'));
		o.validate = address.prefix;

		o = s.taboption('advanced', form.Value, 'certificate', _('Certificate'), _('PEM file with the certificate chain; empty: the gateway makes its own at the first start.'));
		o.validate = fields.absolutePath;
		o.placeholder = _('self-signed');
		o = s.taboption('advanced', form.Value, 'key', _('Key'), _('PEM file with the key of the certificate.'));
		o.placeholder = _('self-signed');
		o.validate = fields.keyOfCertificate;
		o = s.taboption('advanced', form.Value, 'max_connections', _('Connections'), _('Limit on simultaneous QUIC and TCP connections; a single address may have a quarter of them.'));
		o.datatype = 'and(uinteger,range(1,100000))';
		o.placeholder = '1000';
		o = s.taboption('advanced', form.Value, 'memory', _('Memory (MiB)'), _('How much memory the gateway may use; 0: a quarter of the router’s, but at least 32.'));
		o.datatype = 'and(uinteger,range(0,65536))';
		o.placeholder = '0';
		o = s.taboption('advanced', form.Value, 'access_log', _('Access log'), _('File that gets a line for each request, for example /var/log/bquic/access.log; empty: none.'));
		o.validate = fields.absolutePath;
		o = s.taboption('advanced', form.Value, 'redirect', _('Redirect'), _('Address and port, for example :80, where visitors without TLS are sent to the same site with TLS; empty: none.'));
		o.validate = listen;
		o = s.taboption('advanced', form.Value, 'acme_webroot', _('ACME webroot'), _('Directory that contains the ACME challenges in .well-known/acme-challenge/; empty: the site’s own. Requires the redirect.'));
		o.validate = fields.absolutePath;
		fields.metricsOption(s, '127.0.0.1:9464');
		o = s.taboption('advanced', form.Value, 'state_dir', _('State directory'), _('Directory where the gateway keeps its self-signed certificate.'));
		o.validate = fields.absolutePath;
		o.placeholder = '/etc/bquic';
		o = s.taboption('advanced', form.Value, 'status_socket', _('Status socket'), _('Unix socket that “bquic status” and these pages query.'));
		o.validate = fields.absolutePath;
		o.placeholder = '/var/run/bquic/gateway.sock';
		fields.logOptions(s);

		s = m.section(form.GridSection, 'site', _('Sites'), _('Web sites that the gateway serves: files on this router, or servers behind it.'));
		s.anonymous = true;
		s.addremove = true;
		s.sortable = true;
		s.nodescriptions = true;

		s.modaltitle = () => _('Site');

		o = s.option(form.DynamicList, 'host', _('Host names'), _('Names of the site; * stands for every name that no other site has.'));
		o.datatype = 'or("*",hostname,ipaddr("nomask"))';
		o.validate = fields.some('host');
		o.rmempty = false;
		o = s.option(form.Value, 'root', _('Directory'), _('Directory with the site’s files; empty if the site comes from servers.'));
		o.validate = fields.absolutePath;
		o = s.option(form.DynamicList, 'origin', _('Servers'), _('Origin servers of the site: http:// or https://, host and port. The gateway uses the first one that answers.'));
		o.validate = function(id, value) {
			/* value is being typed; the others are in the list */
			const servers = value || [ this.section.formvalue(id, 'origin') ?? [] ].flat().length;

			if (!servers == !this.section.formvalue(id, 'root'))
				return _('Give either a directory or servers.');

			return !value || /^https?:\/\/[^\s/?#@]+(\/[^\s?#]*)?$/.test(value) || _('Must be http:// or https://, host and port.');
		};

		o = s.option(form.Flag, 'listing', _('Listing'), _('Lists the files of a directory that has no index.html.'));
		o.modalonly = true;
		o = s.option(form.Flag, 'early_data', _('Early data'), _('Passes on requests in 0-RTT packets at once. Only for servers that support Early-Data (RFC 8470).'));
		o.modalonly = true;
		o = s.option(form.Value, 'origin_ca', _('Authorities of the servers'), _('PEM file with the authorities that sign the servers’ certificates; empty: the system’s.'));
		o.validate = fields.absolutePath;
		o.modalonly = true;
		o = s.option(form.Value, 'certificate', _('Certificate'), _('PEM file with the certificate chain for these names; empty: the gateway’s.'));
		o.modalonly = true;
		o.validate = function(id, value) {
			return !value || ![ this.section.formvalue(id, 'host') ?? [] ].flat().includes('*')
				? fields.absolutePath(id, value) : _('A site with the host name * uses the gateway’s certificate.');
		};
		o = s.option(form.Value, 'key', _('Key'), _('PEM file with the key of the certificate.'));
		o.modalonly = true;
		o.validate = fields.keyOfCertificate;

		s = m.section(form.GridSection, 'peer', _('Relays with names'),
			_('Each has its own tokens and limits. Removing a relay or a token ends its tunnels at once, and no others.'));
		s.addremove = true;
		s.nodescriptions = true;
		s.modaltitle = (id) => _('Relay %s').format(id);
		s.sectiontitle = (id) => id;

		o = s.option(form.Flag, 'enabled', _('Enabled'), _('Serves this relay.'));
		o.default = '1';
		o.rmempty = false;
		o.editable = true;
		o = s.option(form.DynamicList, 'token', _('Tokens'), _('Secrets that the relay may present, or their hashes; “bquic token” makes both. Several can be valid at a time, so each can be replaced without an outage.'));
		o.validate = fields.some('token', fields.kept);
		o.rmempty = false;
		o.modalonly = true;
		o = s.option(form.DynamicList, 'prefix', _('May connect from'), _('Address prefixes that it may connect from; empty: as for all relays.'));
		o.validate = address.prefix;
		o.textvalue = unless('prefix', _('as for all relays'));
		o = s.option(form.Value, 'tunnels', _('Tunnels'), _('How many tunnels it may have at a time; empty: a fair share of all.'));
		o.datatype = 'and(uinteger,range(1,65536))';
		o.textvalue = unless('tunnels', _('a fair share'));
		o = s.option(form.Value, 'rate', _('Rate (Mbit/s)'), _('Limit of all its tunnels together, in each direction; empty: none.'));
		o.datatype = 'and(uinteger,range(1,100000))';

		profile.section(m, known);

		return common.form(this, m, 'gateway', find, now.node);
	},

	/* What the running gateway knows of its relays, and of its sites' servers. */
	state() {
		const relays = table.create([
			{ title: _('Relay') }, { title: _('Tunnels'), number: true }, { title: _('Since the start'), number: true }, { title: _('Refused'), number: true },
			{ title: _('Sent'), number: true }, { title: _('Received'), number: true }
		], _('Serves no relay: there is no token.'));
		const servers = table.create([ { title: _('Servers') }, { title: _('Last request') } ], _('Nothing yet.'));
		const node = E('div', { 'class': 'cbi-section', 'hidden': '' }, [ E('h3', {}, [ _('Now') ]), relays.element, servers.element ]);

		return { node, show(st) {
			node.hidden = !st;
			relays.update(ask.list(st?.tunnels?.peers).map((p) => ({ key: common.text(p.name), cells: [
				p.name == 'shared' ? _('relays without a name') : common.text(p.name), common.text(p.open), common.text(p.total), common.text(p.refused),
				graph.format(graph.sane(p.up_bytes), 'B'), graph.format(graph.sane(p.down_bytes), 'B')
			] })));
			servers.element.hidden = !ask.list(st?.origins).length;
			servers.update(ask.list(st?.origins).map((o) => ({ key: common.text(o.url), cells: [
				common.text(o.url), o.up ? _('answered') : o.error ? common.text(o.error) : _('no answer')
			] })));
		} };
	}
});
