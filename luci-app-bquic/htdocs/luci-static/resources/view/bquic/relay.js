// SPDX-License-Identifier: Apache-2.0
'use strict';
'require bquic.common as common';
'require bquic.graph as graph';
'require bquic.table as table';
'require dom';
'require form';
'require tools.widgets as widgets';
'require uci';
'require view';

/* The values of a list option in the form: none, one or several. */
function given(section, id, name) {
	return [ section.formvalue(id, name) ?? [] ].flat().filter((v) => v);
}

const hostPort = (value) => /^(\[[0-9A-Fa-f:.]+\]|[^\s:[\]]+):[1-9][0-9]{0,4}$/.test(value) && +value.split(':').pop() < 65536 || _('Must be host:port.');

return view.extend({
	load() {
		return Promise.all([ common.loadConfig('bquic'), common.profiles() ]);
	},

	render([ have, known ]) {
		if (!have)
			return common.noConfig(this, 'bquic-gateway');

		const m = new form.Map('bquic', _('Relay'), _('Runs on a mesh node: takes the TCP connections of its clients and carries them to a gateway, over one connection that fills WiFi frames. While the gateway is away, they go direct.'));
		let o;

		if (!uci.get('bquic', 'relay'))
			uci.add('bquic', 'relay', 'relay');

		const s = m.section(form.NamedSection, 'relay', 'relay');

		s.tab('general', _('General'));
		s.tab('advanced', _('Advanced'));

		o = s.taboption('general', form.Flag, 'enabled', _('Enabled'));
		o.rmempty = false;

		o = s.taboption('general', form.DynamicList, 'gateway', _('Gateways'), _('Host and port of each, in order of preference: the first that answers is used.'));
		o.placeholder = 'gateway.example.org:8443';
		o.validate = function(id, value) {
			if (!value)
				return this.section.formvalue(id, 'enabled') != '1' || given(this.section, id, 'gateway').length > 0 || uci.sections('bquic', 'upstream').length > 0 || _('A relay that is switched on needs a gateway.');

			return hostPort(value);
		};
		o.rmempty = true;

		o = s.taboption('general', form.DynamicList, 'pin', _('Pins'), _('The gateways’ keys, as their pages show them. Pins or authorities are needed.'));
		o.placeholder = 'sha256/…';
		o.validate = function(id, value) {
			const pins = value || given(this.section, id, 'pin').length > 0, ca = this.section.formvalue(id, 'ca');

			if (pins && ca)
				return _('Give pins or authorities, not both.');
			if (!pins && !ca && this.section.formvalue(id, 'enabled') == '1')
				return _('A relay that is switched on needs a pin or authorities.');

			return !value || /^sha256\/[A-Za-z0-9+/]{43}=$/.test(value) || _('Must be sha256/ and 44 characters of base64.');
		};

		common.tokenOption(s, 'general', false, _('Token'), _('The gateway’s secret.'));

		o = s.taboption('general', widgets.DeviceSelect, 'interface', _('Devices'), _('Whose clients’ connections are taken.'));
		o.multiple = true;
		o.noaliases = true;
		o.default = 'br-lan';

		o = s.taboption('advanced', widgets.DeviceSelect, 'uplink', _('Uplinks'), _('Devices, and ports of bridges, that taken connections would have left by without a relay. None: those of the default routes and of the routes to the gateways; of a bridge, also batman-adv’s.'));
		o.multiple = true;
		o.noaliases = true;
		o.optional = true;

		o = s.taboption('advanced', form.ListValue, 'bridge', _('Bridged clients'), _('Connections that are only bridged through this node, to a router beyond. Needs the package kmod-nft-bridge.'));
		o.value('auto', _('taken where the node has a route to the target'));
		o.value('1', _('taken also where only gateways reach the target (TPROXY)'));
		o.value('0', _('not taken'));
		o.default = 'auto';

		o = s.taboption('general', form.DynamicList, 'exclude', _('Except to'), _('Prefixes that are never relayed: for example what the mesh itself offers.'));
		o.datatype = 'or(cidr,ipaddr("nomask"))';

		o = s.taboption('general', form.DynamicList, 'exclude_port', _('Except ports'), _('TCP ports that are never relayed, or ranges of them: for example 25.'));
		o.datatype = 'portrange';

		o = s.taboption('general', form.DynamicList, 'udp_port', _('UDP ports'), _('Ports whose UDP is carried, too, or ranges of them: for example 53. Needs the package kmod-nft-socket.'));
		o.datatype = 'portrange';
		o.validate = (id, value) => {
			const [ low, high ] = value.split('-');

			return !value || !(+low <= 443 && 443 <= +(high ?? low)) || _('Not 443: QUIC of phones is left alone.');
		};

		o = s.taboption('general', form.DummyValue, '_test', _('Test'));
		o.renderWidget = (id) => common.testButton(() => ({
			url: `https://${given(s, id, 'gateway')[0] ?? ''}/`,
			pin: given(s, id, 'pin')[0],
			profile: m.lookupOption('profile', id)[0].formvalue(id)
		}));
		o.description = _('Loads the first gateway’s front page with this router’s own HTTP/3 client.');

		common.profileOption(s, 'advanced', 'profile', known, _('Profile'), _('Towards the gateway.'));

		o = s.taboption('advanced', form.Value, 'server_name', _('Server name'), _('Name in the gateway’s certificate, where it is not the host above.'));
		o.datatype = 'host';
		o = s.taboption('advanced', form.Value, 'ca', _('Authorities'), _('PEM file with the certificates of those who sign the gateway’s.'));
		o.datatype = 'file';
		o = s.taboption('advanced', form.Value, 'connections', _('Connections'), _('QUIC connections to spread the TCP connections over.'));
		o.datatype = 'range(1,8)';
		o.placeholder = '1';
		o = s.taboption('advanced', form.ListValue, 'mode', _('How TCP is taken'), _('TPROXY needs the packages kmod-nft-tproxy and kmod-nft-socket.'));
		o.value('redirect', _('redirect (NAT)'));
		o.value('tproxy', _('TPROXY'));
		o.default = 'redirect';
		o = s.taboption('advanced', form.Value, 'port', _('Port'), _('TCP port on which taken connections arrive.'));
		o.datatype = 'port';
		o.placeholder = '12443';
		o = s.taboption('advanced', form.Value, 'cpu_share', _('Processor'), _('Percent of one processor that the relay may use. Where it would be slower than the way without the relay, TCP takes that way. 0: it is carried whatever that costs.'));
		o.datatype = 'range(0,100)';
		o.placeholder = '50';
		o = s.taboption('advanced', form.Value, 'control_share', _('Control group'), _('Percent of new connections that are drawn to go direct, to see whether the relay helps; a fifth of it once that is sure. 0: nothing is compared.'));
		o.datatype = 'range(0,50)';
		o.placeholder = '5';
		o = s.taboption('general', form.Flag, 'auto', _('Direct when slower'), _('While carried connections are slower beyond doubt, new ones go direct, but for a few that show when it ends.'));
		o.validate = (id, value) => value != '1' || given(s, id, 'control_share')[0] != '0' || _('Needs a control group.');
		o = s.taboption('advanced', form.Value, 'state_dir', _('State directory'), _('Where the comparison is kept over restarts.'));
		o.validate = common.absolutePath;
		o.placeholder = '/etc/bquic';
		o = s.taboption('advanced', form.Value, 'status_socket', _('Status socket'));
		o.validate = common.absolutePath;
		o.placeholder = '/var/run/bquic/relay.sock';
		common.metricsOption(s, 'advanced', '127.0.0.1:9465');
		common.logOptions(s, 'advanced');

		const u = m.section(form.GridSection, 'upstream', _('Gateways that share the load'), _('Instead of the list above: of those that work, those with the largest weight are used, and share new connections.'));
		u.anonymous = true;
		u.addremove = true;
		u.nodescriptions = true;
		u.modaltitle = () => _('Gateway');

		o = u.option(form.Flag, 'enabled', _('Enabled'));
		o.default = '1';
		o.editable = true;
		o = u.option(form.Value, 'gateway', _('Gateway'), _('Its host and port.'));
		o.placeholder = 'gateway.example.org:8443';
		o.rmempty = false;
		o.validate = (id, value) => given(s, 'relay', 'gateway').length > 0 ? _('Give gateways here or in the list above, not both.') : hostPort(value);
		o = u.option(form.Value, 'weight', _('Weight'), _('Largest first; gateways of equal weight share new connections.'));
		o.datatype = 'range(1,1000)';
		o.placeholder = '100';

		common.profileSection(m, known);

		return m.render().then((node) => {
			common.inUse(node, 'bquic', () => uci.sections('bquic', 'relay'), () => common.status().then((st) => () => st?.relay));

			return E([], [ common.style(), node, this.state() ]);
		});
	},

	/* What the running relay tells: its gateways, and what each client has moved. */
	state() {
		const gateways = table.create([ { title: _('Gateway') }, { title: _('Connections'), number: true }, { title: _('State') } ], _('No answer.'));
		const clients = table.create([
			{ title: _('Name') }, { title: _('Address') }, { title: _('Connections'), number: true }, { title: _('Sent'), number: true }, { title: _('Received'), number: true }
		], _('No clients yet.'));
		let names = new Map();
		const processor = E('p'), unseen = E('p', { 'class': 'alert-message warning', 'hidden': '' });
		const reasons = {
			kernel: _('this kernel cannot take what is only bridged (is kmod-nft-bridge installed?)'),
			off: _('their router may be beyond the bridge, and bridged clients are switched off'),
			'no port': _('no port of the bridge is known to lead to a router: name it under Uplinks'),
			'no device': _('one of the devices is not there'),
			elsewhere: _('their connections go by other devices')
		};
		const node = E('div', { 'class': 'cbi-section', 'hidden': '' }, [
			E('h3', {}, [ _('Now') ]), unseen, processor, gateways.element, E('h3', {}, [ _('Clients') ]), clients.element
		]);
		const states = { up: _('connected'), 'no uplink': _('no uplink'), away: _('away'), unused: _('not asked') };

		common.every(10, () => common.hostNames().then((found) => { names = found; }));
		common.every(2, () => common.status().catch(() => null).then((st) => {
			const list = (name) => (Array.isArray(st?.relay?.[name]) ? st.relay[name] : []).filter((x) => x);
			const row = (c, name, address) => ({
				key: address ?? name,
				cells: [ name, address, common.text(c.connections), graph.format(graph.sane(c.sent), 'B'), graph.format(graph.sane(c.received), 'B') ]
			});

			node.hidden = !st?.relay;
			unseen.hidden = !st?.relay?.unseen;
			unseen.textContent = _('Clients are busy, and no connection of theirs comes by: %s.').format(reasons[st?.relay?.unseen?.why] ?? common.text(st?.relay?.unseen?.reason));
			processor.textContent = common.processor(st?.relay?.processor);
			gateways.update(list('gateways').map((g) => ({
				key: common.text(g.address),
				active: g.state == 'up',
				cells: [ common.text(g.address), common.text(g.streams), [ states[g.state] ?? common.text(g.state), g.error ? common.text(g.error) : null ].filter((x) => x).join(': ') ]
			})));
			clients.update([
				...list('clients').map((c) => row(c, names.get(common.text(c.address).toLowerCase()), common.text(c.address))),
				...graph.sane(st?.relay?.others?.sent) || graph.sane(st?.relay?.others?.received) ? [ row(st.relay.others, _('all others')) ] : []
			]);
		}));

		return node;
	}
});
