// SPDX-License-Identifier: Apache-2.0
'use strict';
'require baseclass';
'require poll';
'require rpc';
'require ui';

/* Questions to the router, and when they are asked. */

const callDevices = rpc.declare({ object: 'network.device', method: 'status' });
const callIwinfoDevices = rpc.declare({ object: 'iwinfo', method: 'devices' });
const callIwinfoInfo = rpc.declare({ object: 'iwinfo', method: 'info', params: [ 'device' ] });
const callIwinfoAssoclist = rpc.declare({ object: 'iwinfo', method: 'assoclist', params: [ 'device' ] });

const AWAY = new Error(_('The router does not answer.'));

/* What is asked again and again, and had no answer the last time. */
const lost = new Set();

/* What there is in a list of an answer; nothing if it is none. */
const list = (value) => Array.isArray(value) ? value.filter((x) => x) : [];

/* LuCI has stopped polling then, and asks for the password. */
const expired = (err) => err?.name == 'SessionError';

/* What an object answers. null: it has failed; undefined: it is not installed. Rejects if the router does not answer at all, or not without a new login. */
function answer(object, promise) {
	return promise.catch((err) => {
		if (expired(err))
			throw err;
		return rpc.list(object).then((objects) => objects[object] ? null : undefined, () => { throw AWAY; });
	});
}

const question = (object, call) => () => answer(object, call());

return baseclass.extend({
	answer: answer,
	list: list,

	/* What went wrong. LuCI adds lines for developers. */
	wrong: (err) => String(err.message ?? err).split('\n')[0],

	status: question('bquic', rpc.declare({ object: 'bquic', method: 'status', reject: true })),
	mistakes: question('bquic', rpc.declare({ object: 'bquic', method: 'check', reject: true })),
	schedulers: question('wifirr', rpc.declare({ object: 'wifirr', method: 'status', reject: true })),
	schedulerMistakes: question('wifirr', rpc.declare({ object: 'wifirr', method: 'check', reject: true })),
	history: question('bquic', rpc.declare({ object: 'bquic', method: 'history', reject: true })),
	schedulerHistory: question('wifirr', rpc.declare({ object: 'wifirr', method: 'history', reject: true })),
	hostHints: question('luci-rpc', rpc.declare({ object: 'luci-rpc', method: 'getHostHints', reject: true })),
	clients: question('wifirr', rpc.declare({ object: 'wifirr', method: 'clients', reject: true })),

	/*
	 * Calls fn at once, and then every so many seconds while the page is visible, and when it is seen again, but never before
	 * the last answer: a slow router gets no more to do. While the router does not answer, as during a restart, the page
	 * stays as it is, and says so.
	 */
	every(seconds, fn) {
		let asked = null;
		const ask = () => fn().then(() => lost.delete(fn), (err) => {
			if (err === AWAY)
				lost.add(fn);
			else if (!expired(err))
				throw err;
		}).then(() => lost.size ? ui.showIndicator('bquic', AWAY.message, null, 'inactive') : ui.hideIndicator('bquic'))
			.finally(() => { asked = null; });
		const seen = () => document.hidden ? Promise.resolve() : asked ??= ask();

		seen();
		document.addEventListener('visibilitychange', seen);
		poll.add(seen, seconds);
	},

	/* What iwinfo says of a device. */
	wifi: (device) => L.resolveDefault(callIwinfoInfo(device), null),

	/* [ { device, ssid } ] of the access points. From iwinfo which, unlike network.wireless, does not expose WiFi keys. */
	accessPoints() {
		return L.resolveDefault(callIwinfoDevices(), null).then((answer) => Promise.all(
			list(answer?.devices).map((device) =>
				this.wifi(device).then((info) => ({ device, mode: info?.mode, ssid: info?.ssid })))
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
		return this.hostHints().then((hints) => {
			const names = new Map();

			for (const [ mac, hint ] of Object.entries(hints ?? {}))
				for (const address of hint?.name ? [ mac, hint.ipaddrs ?? [], hint.ip6addrs ?? [] ].flat() : [])
					names.set(String(address).toLowerCase(), String(hint.name));

			return names;
		});
	}
});
