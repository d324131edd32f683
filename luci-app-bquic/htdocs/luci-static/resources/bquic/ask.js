// SPDX-License-Identifier: Apache-2.0
'use strict';
'require baseclass';
'require poll';
'require rpc';
'require ui';

/* Questions to the router, and when they are asked. */

const AWAY = new Error(_('The router does not answer.'));

/* What is asked again and again, and had no answer the last time. */
const lost = new Set();

/* rpcd's objects among these: packages that are installed. */
function known(...objects) {
	return rpc.list(...objects).catch(() => { throw AWAY; });
}

/* LuCI has stopped polling then, and asks for the password. */
const expired = (err) => err?.name == 'SessionError';

/* What an object answers, or null: it is not installed, or has failed. Rejects if the router does not answer at all, or not without a new login. */
function answer(object, promise) {
	return promise.catch((err) => {
		if (expired(err))
			throw err;
		return known(object).then(() => null);
	});
}

const question = (object, call) => () => answer(object, call());

return baseclass.extend({
	known: known,
	answer: answer,

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
	 * Calls fn at once, and then every so many seconds while the page is visible, and when it is seen again. While the router
	 * does not answer, as during a restart, the page stays as it is, and says so.
	 */
	every(seconds, fn) {
		const seen = () => document.hidden ? Promise.resolve() : fn().then(() => lost.delete(fn), (err) => {
			if (err === AWAY)
				lost.add(fn);
			else if (!expired(err))
				throw err;
		}).then(() => lost.size ? ui.showIndicator('bquic', AWAY.message, null, 'inactive') : ui.hideIndicator('bquic'));

		seen();
		document.addEventListener('visibilitychange', seen);
		poll.add(seen, seconds);
	}
});
