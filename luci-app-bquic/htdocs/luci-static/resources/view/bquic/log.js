// SPDX-License-Identifier: Apache-2.0
'use strict';
'require bquic.ask as ask';
'require bquic.common as common';
'require bquic.table as table';
'require rpc';
'require view';

const MOST = 500; /* most lines shown, the latest ones */

/* Exactly as in the access list, which allows no other commands: all, or those among the latest messages, because rpcd refuses more than 256 KiB. */
const COMMANDS = [ [ '-e', 'bquic\\|wifirr' ], [ '-l', '1000', '-e', 'bquic\\|wifirr' ] ];
const callExec = rpc.declare({ object: 'file', method: 'exec', params: [ 'command', 'params' ], reject: true });

/*
 * "Tue Nov 24 20:34:47 2026 daemon.err bquic[42]: level=WARN text", or the whole line as text. procd takes all that
 * is not information for an error.
 */
function parse(line) {
	const m = line.match(/^(\w+ +\w+ +\d+ [\d:]+ \d+) \w+\.(\w+) ([^ :]+): (?:level=(\w+) )?(.*)$/);

	return m ? { at: m[1], level: m[4]?.toLowerCase() ?? m[2], who: m[3].replace(/\[\d+\]$/, ''), text: m[5] } : { at: '', level: '', who: '', text: line };
}

/* Of other programs' lines that name ours, those that say how they end: procd kills what does not stop, the kernel what takes too much memory. */
const ours = (line) => /^(bquic|wifirr|procd$|kernel$|$)/.test(line.who);
const serious = (line) => /^(emerg|alert|crit|err|warn)/.test(line.level);

/* Messages of the daemons and their init scripts in the system log. */
return view.extend({
	handleSaveApply: null,
	handleSave: null,
	handleReset: null,

	render() {
		this.lines = [];
		this.note = E('div', { 'aria-live': 'polite' });
		this.command = 0;
		this.table = table.create([ { title: _('Time') }, { title: _('Level') }, { title: _('Program') }, { title: _('Text') } ], _('No lines.'));
		this.table.element.classList.add('bquic-log');
		this.only = E('input', { 'type': 'checkbox', 'id': 'bquic-log-only', 'change': () => this.show() });
		this.search = E('input', { 'type': 'search', 'class': 'cbi-input-text', 'aria-label': _('Search'), 'placeholder': _('Search'), 'input': () => this.show() });
		ask.every(5, () => this.refresh());

		return common.page(_('Log'), _('Lines from the gateway, the relay and the scheduler in the system log, the latest first.'),
			E('p', {}, [ this.search, ' ', E('label', { 'for': 'bquic-log-only' }, [ this.only, ' ', _('only errors and warnings') ]) ]),
			this.note, this.table.element);
	},

	refresh() {
		return ask.answer('file', callExec('/sbin/logread', COMMANDS[this.command])).then((answer) => {
			if (!answer && !this.command) {
				this.command = 1;

				return this.refresh();
			}

			/* not by every program that keeps a system log */
			const failed = !answer || answer.code > 0;

			common.renew(this.note, failed ? [ common.alert([ _('The system log cannot be read.'), String(answer?.stderr ?? '').split('\n')[0] ].join(' ')) ] : []);
			if (!failed)
				this.lines = String(answer.stdout ?? '').split('\n').filter((l) => l).reverse();
			this.show();

			return null;
		});
	},

	show() {
		const wanted = this.search.value.toLowerCase(), seen = new Map();

		this.table.update(this.lines.map((line) => [ line, parse(line) ])
			.filter(([ line, l ]) => ours(l) && line.toLowerCase().includes(wanted) && (!this.only.checked || serious(l)))
			.slice(0, MOST).map(([ line, l ]) => {
				const times = (seen.get(line) ?? 0) + 1; /* a line may occur more than once */

				seen.set(line, times);
				return { key: `${line} ${times}`, cells: [ l.at, l.level, l.who, l.text ] };
			}));
	}
});
