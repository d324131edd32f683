// SPDX-License-Identifier: Apache-2.0
'use strict';
'require bquic.address as address';
'require bquic.ask as ask';
'require bquic.common as common';
'require bquic.fields as fields';
'require bquic.graph as graph';
'require bquic.profile as profile';
'require bquic.table as table';
'require bquic.taking as taking';
'require form';
'require tools.widgets as widgets';
'require uci';
'require view';

/* The values of a list option in the form: none, one or several. */
function given(section, id, name) {
	return [ section.formvalue(id, name) ?? [] ].flat().filter((v) => v);
}

const hostPort = (value) => address.withPort(value, /^[^\s:[\]]+$/) || _('Must be host:port, for example 10.1.2.3:8443 or [fd00::1]:8443.');

return view.extend({
	load() {
		return Promise.all([ common.loadForm('bquic', 'relay'), profile.known() ]);
	},

	render([ have, known ]) {
		const now = this.state(), find = () => ask.status().then((st) => {
			now.show(st?.relay);

			return () => st?.relay;
		});

		if (!have)
			return common.noConfig(this, _('Relay'), 'bquic-gateway', find, now.node);

		const m = new form.Map('bquic', _('Relay'), _('The relay runs on a mesh node. It carries the TCP connections of the node’s clients to a gateway, over connections that fill WiFi frames. While no gateway answers, connections go direct.'));
		const name = common.nameOf('relay');
		let o;

		const s = m.section(form.NamedSection, name, 'relay');

		s.tab('general', _('General'));
		s.tab('advanced', _('Advanced'));

		o = s.taboption('general', form.Flag, 'enabled', _('Enabled'), _('Starts the relay.'));
		o.rmempty = false;

		o = s.taboption('general', form.DynamicList, 'gateway', _('Gateways'), _('Host and port of each gateway, in order of preference; the first that answers is used.'));
		o.placeholder = 'gateway.example.org:8443';
		o.validate = function(id, value) {
			if (!value)
				return this.section.formvalue(id, 'enabled') != '1' || given(this.section, id, 'gateway').length > 0 || common.upstreams((id) => u.formvalue(id, 'enabled')).length > 0 || _('A relay that is switched on needs a gateway.');

			return hostPort(value);
		};
		o.rmempty = true;

		o = s.taboption('general', form.DynamicList, 'pin', _('Pins'), _('The gateways’ keys, as their pages show them. Without pins, name authorities under Advanced.'));
		o.placeholder = 'sha256/…';
		o.validate = function(id, value) {
			const pins = value || given(this.section, id, 'pin').length > 0, ca = this.section.formvalue(id, 'ca');

			if (pins && ca)
				return _('Give pins or authorities, not both.');
			if (!pins && !ca && this.section.formvalue(id, 'enabled') == '1')
				return _('A relay that is switched on needs a pin or authorities.');

			return !value || /^sha256\/[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=$/.test(value) || _('Must be sha256/ and 44 characters of base64.');
		};

		fields.tokenOption(s, 'general', false, _('Token'), _('Secret by which the gateway recognises this relay.'));

		o = s.taboption('general', widgets.DeviceSelect, 'interface', _('Devices'), _('The relay takes the connections of the clients behind these devices.'));
		o.multiple = true;
		o.noaliases = true;
		o.default = 'br-lan';

		o = s.taboption('advanced', widgets.DeviceSelect, 'uplink', _('Uplinks'), _('Devices and bridge ports through which connections would leave without the relay; only those are taken. Empty: those of the default routes and of the routes to the gateways; on a bridge, also the batman-adv port.'));
		o.multiple = true;
		o.noaliases = true;
		o.optional = true;

		o = s.taboption('advanced', form.ListValue, 'bridge', _('Bridged clients'), _('What happens to connections that this node only bridges to a router beyond it. Taking them requires the package kmod-nft-bridge.'));
		o.value('auto', _('taken where the node has a route to the target'));
		o.value('1', _('also taken where only gateways reach the target (TPROXY)'));
		o.value('0', _('not taken'));
		o.default = 'auto';

		o = s.taboption('general', form.DynamicList, 'exclude', _('Except to'), _('Address prefixes of targets that are never relayed, for example of services in the mesh.'));
		o.validate = address.prefix;

		o = s.taboption('general', form.DynamicList, 'exclude_port', _('Except ports'), _('TCP ports, or ranges of them, that are never relayed, for example 25.'));
		o.validate = address.ports;

		o = s.taboption('general', form.DynamicList, 'udp_port', _('UDP ports'), _('UDP ports, or ranges of them, that the relay also carries, for example 53. Requires the package kmod-nft-socket.'));
		o.validate = (id, value) => {
			const [ low, high ] = value.split('-'), said = address.ports(id, value);

			return said !== true ? said : !value || !(+low <= 443 && 443 <= +(high ?? low)) || _('Must not include 443: the relay leaves the clients’ own QUIC alone.');
		};

		o = s.taboption('general', form.DummyValue, '_test', _('Test'));
		o.renderWidget = (id) => fields.testButton(() => {
			const gateway = given(s, id, 'gateway')[0] ?? common.upstreams((name) => u.formvalue(name, 'enabled'))[0];

			if (!gateway)
				return { reason: _('There is no gateway to test: name one first.') };
			if (s.formvalue(id, 'server_name'))
				return { reason: _('The test knows no other server name. Switch the relay on: the table below then shows whether the gateway answers.') };

			return { url: `https://${gateway.replace('%', '%25')}/`, pins: given(s, id, 'pin'), ca: s.formvalue(id, 'ca'), profile: m.lookupOption('profile', id)[0].formvalue(id) };
		});
		o.description = _('Loads the first gateway’s front page with this router’s own HTTP/3 client. Status 421 is a success, too: the gateway only has no site of this name.');

		profile.option(s, 'profile', known, _('Profile'), _('How the relay sends to the gateway, and acknowledges what it receives from there.'));

		o = s.taboption('advanced', form.Value, 'server_name', _('Server name'), _('Name in the gateway’s certificate; empty: the gateway’s host.'));
		o.datatype = 'host';
		o = s.taboption('advanced', form.Value, 'ca', _('Authorities'), _('PEM file with the authorities that sign the gateways’ certificates, in place of pins.'));
		o.validate = fields.absolutePath;
		o = s.taboption('advanced', form.Value, 'connections', _('Connections'), _('QUIC connections with each gateway. auto: one while all clients are idle, otherwise eight, over which their TCP connections spread. A number is for a mesh with several paths of equal cost.'));
		o.datatype = 'or("auto",and(uinteger,range(1,8)))';
		o.placeholder = 'auto';
		o = s.taboption('advanced', form.ListValue, 'mode', _('How TCP is taken'), _('How the kernel hands TCP connections to the relay. TPROXY requires the packages kmod-nft-tproxy and kmod-nft-socket.'));
		o.value('redirect', _('redirect (NAT)'));
		o.value('tproxy', _('TPROXY'));
		o.default = 'redirect';
		o = s.taboption('advanced', form.Value, 'port', _('Port'), _('TCP port on which taken connections arrive.'));
		o.datatype = 'and(uinteger,range(1,65535))';
		o.placeholder = '12443';
		o = s.taboption('advanced', form.Value, 'cpu_share', _('Processor (%)'), _('How much of one processor the relay may use. If it would take more to carry all that the path can, TCP goes direct. 0: no limit; TCP is always carried.'));
		o.datatype = 'and(uinteger,range(0,100))';
		o.placeholder = '50';
		o = s.taboption('advanced', form.Value, 'control_share', _('Control group (%)'), _('Share of the new connections that goes direct, drawn at random, to see whether the relay helps; a fifth of this once the answer is certain, four times this while there is a doubt, and with “Direct when slower” until it is certain. 0: no comparison.'));
		o.datatype = 'and(uinteger,range(0,50))';
		o.placeholder = '5';
		o = s.taboption('general', form.Flag, 'auto', _('Direct when slower'), _('While carried connections are certainly slower, new ones go direct. The relay still carries a few, to notice when that ends.'));
		o.validate = (id, value) => value != '1' || given(s, id, 'control_share')[0] != '0' || _('Requires a control group.');
		o = s.taboption('advanced', form.Value, 'state_dir', _('State directory'), _('Directory that keeps the comparison across restarts; the relay writes to it at most once an hour.'));
		o.validate = fields.absolutePath;
		o.placeholder = '/etc/bquic';
		o = s.taboption('advanced', form.Value, 'status_socket', _('Status socket'), _('Unix socket that “bquic status” and these pages query.'));
		o.validate = fields.absolutePath;
		o.placeholder = '/var/run/bquic/relay.sock';
		fields.metricsOption(s, '127.0.0.1:9465');
		fields.logOptions(s);

		const u = m.section(form.GridSection, 'upstream', _('Gateways that share the load'), _('Gateways with a weight each, instead of the list above. Of those that work, those with the largest weight share new connections.'));
		u.anonymous = true;
		u.addremove = true;
		u.nodescriptions = true;
		u.modaltitle = () => _('Gateway');

		o = u.option(form.Flag, 'enabled', _('Enabled'), _('Uses this gateway.'));
		o.default = '1';
		o.editable = true;
		o = u.option(form.Value, 'gateway', _('Gateway'), _('Host and port of the gateway.'));
		o.placeholder = 'gateway.example.org:8443';
		o.rmempty = false;
		o.validate = (id, value) => given(s, name, 'gateway').length > 0 ? _('Give gateways here or in the list above, not both.') : hostPort(value);
		o = u.option(form.Value, 'weight', _('Weight'), _('The largest weight is used first; gateways of equal weight share new connections.'));
		o.datatype = 'and(uinteger,range(1,1000))';
		o.placeholder = '100';
		o.textvalue = (id) => E('span', {}, [ uci.get('bquic', id, 'weight') ?? '100' ]);

		profile.section(m, known);

		return common.form(this, m, 'relay', find, now.node);
	},

	/* The status of the running relay: its gateways, and the traffic of each client. */
	state() {
		const gateways = table.create([ { title: _('Gateway') }, { title: _('Connections'), number: true }, { title: _('State') } ], _('No answer.'));
		const clients = table.create([
			{ title: _('Name') }, { title: _('Address') }, { title: _('Connections'), number: true }, { title: _('Sent'), number: true }, { title: _('Received'), number: true }
		], _('No clients yet.'));
		let names = new Map();
		const how = E('div');
		const node = E('div', { 'class': 'cbi-section', 'hidden': '' }, [
			E('h3', {}, [ _('Now') ]), how, gateways.element, E('h3', {}, [ _('Clients') ]), clients.element
		]);
		const states = { up: _('connected'), 'no uplink': _('no uplink'), away: _('away'), unused: _('not asked') };

		ask.every(10, () => ask.hostNames().then((found) => { names = found; }));

		return { node, show(st) {
			const list = (name) => ask.list(st?.[name]);
			const row = (c, name, address) => ({
				key: address ?? name,
				cells: [ name, address, common.text(c.connections), graph.format(graph.sane(c.sent), 'B'), graph.format(graph.sane(c.received), 'B') ]
			});

			node.hidden = !st;
			common.renew(how, taking.why(st));
			gateways.update(list('gateways').map((g) => ({
				key: common.text(g.address),
				active: g.state == 'up',
				cells: [ common.text(g.address), common.text(g.streams), [ states[g.state] ?? common.text(g.state), g.error ? common.text(g.error) : null ].filter((x) => x).join(': ') ]
			})));
			clients.update([
				/* not the latest first: rows stay while connections come and go */
				...list('clients').map((c) => row(c, names.get(common.text(c.address).toLowerCase()), common.text(c.address)))
					.sort((a, b) => a.key.localeCompare(b.key, [], { numeric: true })),
				...graph.sane(st?.others?.sent) || graph.sane(st?.others?.received) ? [ row(st.others, _('all others')) ] : []
			]);
		} };
	}
});
