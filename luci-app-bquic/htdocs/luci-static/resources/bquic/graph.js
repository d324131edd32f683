// SPDX-License-Identifier: Apache-2.0
'use strict';
'require baseclass';

/* A line graph of the last five minutes, or of the last hours. Everything that is shown goes through
   textContent: names and units are never markup. */

const EVERY = 5; /* seconds between two samples */
const POINTS = 60; /* samples in five minutes */
const SLOW = 2; /* samples that an answer may take */
const MINUTES = 720; /* samples of both daemons' history */
const WIDTH = 300, HEIGHT = 100; /* the viewBox, which is stretched */

function svg(tag, attributes) {
	const node = document.createElementNS('http://www.w3.org/2000/svg', tag);

	for (const name in attributes)
		node.setAttribute(name, attributes[name]);

	return node;
}

function html(tag, className, text) {
	const node = document.createElement(tag);

	node.className = className;
	node.textContent = text ?? '';

	return node;
}

/* A number to draw, or null: a missing value is a gap, not a zero. */
function sane(value) {
	return typeof value == 'number' && isFinite(value) && value >= 0 ? value : null;
}

/* "12.3 M": at most four digits, with the decimal mark of the page's language, then an SI prefix, unless the unit has one. */
function format(value, unit) {
	const prefixes = [ '', 'k', 'M', 'G', 'T', 'P', 'E' ];
	let i = 0;

	if (value === null)
		return '–';
	while (value >= 1000 && i < prefixes.length - 1 && unit != 'ms') {
		value /= 1000;
		i++;
	}

	const digits = value >= 1e6 ? value.toExponential(1) : value.toFixed(value >= 100 || (i == 0 && value % 1 == 0) ? 0 : 1).replace('.', _('0.5').charAt(1));
	const tail = prefixes[i] + (unit ?? '');

	/* no space before a percent sign or a bare prefix */
	return digits + (tail ? '\u00a0' + tail : '');
}

/* The least number that is 1, 2 or 5 times a power of ten and not below value. */
function ceiling(value) {
	const power = Math.pow(10, Math.floor(Math.log10(Math.max(value, 1e-9))));

	for (const step of [ 1, 2, 5, 10 ])
		if (step * power >= value)
			return step * power;

	return value;
}

return baseclass.extend({
	every: EVERY,
	format: format,
	sane: sane,
	svg: svg,

	/* title, unit: text; names: one or two series; least: the smallest range of the scale */
	create(title, unit, names, least) {
		const recent = names.map(() => []);
		let past = names.map(() => []), hours = false, pushed = Infinity;
		const keys = names.map((name, i) => html('span', `key s${i}`));
		const top = html('small', 'top');
		const lines = names.map((name, i) => svg('path', { 'class': `s${i}` }));
		const picture = svg('svg', {
			'viewBox': `0 0 ${WIDTH} ${HEIGHT}`,
			'preserveAspectRatio': 'none',
			'role': 'img'
		});
		const caption = html('figcaption', ''), times = html('div', 'times');
		const figure = html('figure', 'bquic-graph bquic-card');

		const legend = html('span', 'keys');

		legend.append(...keys);
		caption.append(html('strong', '', title), top, legend);
		for (const y of [ 0.5, HEIGHT / 2, HEIGHT - 0.5 ])
			picture.append(svg('line', { 'x1': 0, 'x2': WIDTH, 'y1': y, 'y2': y }));
		picture.append(...lines);
		times.append(...[ 1, 0.5, 0 ].map(() => html('span', '')));
		times.ariaHidden = 'true';
		figure.append(caption, picture, times);

		function draw() {
			const values = hours ? past : recent;
			const points = hours ? Math.max(MINUTES, ...past.map((p) => p.length)) : POINTS;
			const most = ceiling(values.flat().reduce((a, v) => Math.max(a, v ?? 0), least ?? 0));
			const now = names.map((name, i) => `${name}: ${format(recent[i].at(-1) ?? null, unit)}`);

			/* without values, draw no graph */
			figure.hidden = ![ ...recent, ...past ].flat().some((v) => v !== null);

			/* by the clock of who looks: the samples end now */
			[ ...times.children ].forEach((time, i) => {
				const ago = (1 - i / 2) * points * (hours ? 60 : EVERY);

				time.textContent = new Date(Date.now() - 1000 * ago).toLocaleTimeString([], { hour: '2-digit', minute: '2-digit' });
			});
			top.textContent = '≤ ' + format(most, unit);
			picture.setAttribute('aria-label', `${title}. ${now.join(', ')}`);
			names.forEach((name, i) => {
				const line = [];

				values[i].forEach((v, at) => {
					const known = (at) => (values[i][at] ?? null) !== null;

					if (!known(at))
						return;
					const x = WIDTH * (points - values[i].length + at + 1) / points;
					const y = HEIGHT - HEIGHT * v / most;
					/* a line does not go on where nothing is known; without a neighbour, a value is a dot */
					line.push(`${known(at - 1) ? '' : 'M'}${x.toFixed(1)},${y.toFixed(1)}${known(at - 1) || known(at + 1) ? '' : 'h.1'}`);
				});
				lines[i].setAttribute('d', line.join(' '));
				keys[i].textContent = now[i];
			});
		}

		draw();

		return {
			element: figure,

			/* one list of samples per series, oldest first, ending now */
			setPast(lists) {
				past = lists.map((list) => list.map(sane));
				draw();
			},

			show(past) {
				hours = past;
				draw();
			},

			/* one value per series; the time without any, for example while the page was hidden, is a gap, unless the router was slow */
			push(...samples) {
				const missed = Math.max(0, Math.min(POINTS, Math.round((Date.now() - pushed) / 1000 / EVERY) - 1));

				pushed = Date.now();
				names.forEach((name, i) => {
					recent[i].push(...Array(missed).fill(missed > SLOW ? null : sane(samples[i])), sane(samples[i]));
					recent[i].splice(0, recent[i].length - POINTS);
				});
				draw();
			}
		};
	}
});
