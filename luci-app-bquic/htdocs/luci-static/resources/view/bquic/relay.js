// SPDX-License-Identifier: Apache-2.0
'use strict';
'require bquic.common as common';
'require form';
'require tools.widgets as widgets';
'require uci';
'require view';

return view.extend({
	load() {
		return Promise.all([ common.loadConfig('bquic'), common.profiles() ]);
	},

	render([ have, known ]) {
		if (!have)
			return common.noConfig('bquic-gateway');

		const m = new form.Map('bquic', _('Relay'), _('Runs on a mesh node: takes the TCP connections of its clients and carries them to a gateway, over one connection that fills WiFi frames. While the gateway is away, they go direct.'));
		let o;

		if (!uci.get('bquic', 'relay'))
			uci.add('bquic', 'relay', 'relay');

		const s = m.section(form.NamedSection, 'relay', 'relay');

		s.tab('general', _('General'));
		s.tab('advanced', _('Advanced'));

		o = s.taboption('general', form.Flag, 'enabled', _('Enabled'));
		o.rmempty = false;

		o = s.taboption('general', form.Value, 'gateway', _('Gateway'), _('Its host and port.'));
		o.placeholder = 'gateway.example.org:8443';
		o.validate = function(id, value) {
			if (!value)
				return this.section.formvalue(id, 'enabled') != '1' || _('A relay that is switched on needs a gateway.');

			return /^(\[[0-9A-Fa-f:.]+\]|[^\s:[\]]+):[1-9][0-9]{0,4}$/.test(value) && +value.split(':').pop() < 65536 || _('Must be host:port.');
		};
		o.optional = false;
		o.rmempty = true;

		o = s.taboption('general', form.Value, 'pin', _('Pin'), _('The gateway’s key, as its page shows it. One of pin and authorities is needed.'));
		o.placeholder = 'sha256/…';
		o.validate = function(id, value) {
			if (value && this.section.formvalue(id, 'ca'))
				return _('Give a pin or authorities, not both.');

			return !value || /^sha256\/[A-Za-z0-9+/]{43}=$/.test(value) || _('Must be sha256/ and 44 characters of base64.');
		};

		common.tokenOption(s, 'general', false, _('Token'), _('The gateway’s secret.'));

		o = s.taboption('general', widgets.DeviceSelect, 'interface', _('Devices'), _('Whose clients’ connections are taken.'));
		o.multiple = true;
		o.noaliases = true;
		o.default = 'br-lan';

		o = s.taboption('general', form.DynamicList, 'exclude', _('Except to'), _('Prefixes that are never relayed: for example what the mesh itself offers.'));
		o.datatype = 'or(cidr,ipaddr("nomask"))';

		o = s.taboption('general', form.DummyValue, '_test', _('Test'));
		o.renderWidget = (id) => common.testButton(() => ({
			url: `https://${m.lookupOption('gateway', id)[0].formvalue(id) ?? ''}/`,
			pin: m.lookupOption('pin', id)[0].formvalue(id),
			profile: m.lookupOption('profile', id)[0].formvalue(id)
		}));
		o.description = _('Loads the gateway’s front page with this router’s own HTTP/3 client.');

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
		o = s.taboption('advanced', form.Value, 'status_socket', _('Status socket'));
		o.validate = common.absolutePath;
		o.placeholder = '/var/run/bquic/relay.sock';
		common.logOptions(s, 'advanced');

		common.profileSection(m, known);

		return m.render().then((node) => E([], [ common.style(), node ]));
	}
});
