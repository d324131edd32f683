// SPDX-License-Identifier: Apache-2.0
'use strict';
'require baseclass';

/* Which prefixes, ports and addresses with ports a form takes: those that the daemons take. */

/* The bits of an IP address, as text of 0 and 1; '': not an address. */
function bitsOf(text) {
	const groups = (numbers, base, width) => numbers.map((n) => parseInt(n, base).toString(2).padStart(width, '0')).join('');

	if (/^(0|[1-9]\d{0,2})(\.(0|[1-9]\d{0,2})){3}$/.test(text))
		return text.split('.').every((n) => n < 256) ? groups(text.split('.'), 10, 8) : '';
	if (!/^[0-9A-Fa-f:.]+$/.test(text))
		return '';
	try {
		/* without dots, and with :: for the most zeros */
		const [ head, tail ] = new URL(`http://[${text}]`).hostname.slice(1, -1).split('::').map((part) => part.split(':').filter((g) => g));

		return groups(tail ? [ ...head, ...Array(8 - head.length - tail.length).fill('0'), ...tail ] : head, 16, 16);
	}
	catch (e) {
		return '';
	}
}

return baseclass.extend({
	/* Whether a value is host:port. The host is an IPv6 address in brackets, or what the pattern says. */
	withPort(value, host) {
		const [ , name, port ] = value.match(/^(.*):([1-9][0-9]{0,4})$/) ?? [];

		return port < 65536 && (/^\[[0-9A-Fa-f:.]+(%[A-Za-z0-9_.-]+)?\]$/.test(name) || host.test(name));
	},

	/* As config.parsePrefix has it: one address or a prefix, without bits beyond its length, and not of IPv4 as IPv6. */
	prefix(id, value) {
		const [ , address, , length ] = value.match(/^([^/]*)(\/(0|[1-9]\d{0,2}))?$/) ?? [];
		const bits = bitsOf(address ?? '');

		return !value || bits && (length ?? 0) <= bits.length && !(length && bits.slice(length).includes('1')) && !/^0{80}1{16}/.test(bits)
			|| _('Must be an address or a prefix without further bits, for example 10.1.0.0/16 or fd00::/8.');
	},

	/* As divert.ParsePorts has it. */
	ports(id, value) {
		const [ , first, last ] = value.match(/^(\d{1,5})(?:-(\d{1,5}))?$/) ?? [];

		return !value || +first > 0 && +(last ?? first) >= +first && +(last ?? first) < 65536 || _('Must be a port from 1 to 65535, or a range such as 6000-6063.');
	}
});
