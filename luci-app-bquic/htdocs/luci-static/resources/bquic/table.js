// SPDX-License-Identifier: Apache-2.0
'use strict';
'require baseclass';

/* A table that is updated in place, so that focus and selection stay.
   Cells are text or nodes; text is never markup. */

function cell(tag, column) {
	const node = document.createElement(tag);

	node.className = column.number ? 'number' : column.class ?? '';

	return node;
}

return baseclass.extend({
	/* columns: [ { title, number, class } ]; none: the text shown if there are no rows */
	create(columns, none) {
		const body = document.createElement('tbody');
		const table = document.createElement('table');
		const rows = new Map();

		const head = document.createElement('tr');
		for (const column of columns) {
			const th = cell('th', column);
			th.scope = 'col';
			th.textContent = column.title;
			head.append(th);
		}
		table.className = 'bquic-table';
		table.append(document.createElement('thead'), body);
		table.tHead.append(head);

		const placeholder = document.createElement('tr');
		const wide = document.createElement('td');
		wide.colSpan = columns.length;
		wide.textContent = _('Waiting for an answer…');
		placeholder.append(wide);
		body.append(placeholder);

		function make() {
			const row = document.createElement('tr');

			for (const column of columns) {
				const td = cell('td', column);
				td.dataset.title = column.title;
				row.append(td);
			}

			return row;
		}

		return {
			element: table,

			/* data: [ { key, active, cells: [ text or node ] } ], in this order */
			update(data) {
				const keys = new Set(data.map((d) => d.key));

				for (const [ key, row ] of rows) {
					if (!keys.has(key)) {
						row.remove();
						rows.delete(key);
					}
				}
				data.forEach((d, at) => {
					const row = rows.get(d.key) ?? make();

					rows.set(d.key, row);
					row.classList.toggle('active', !!d.active);
					d.cells.forEach((content, i) => {
						const td = row.cells[i];

						if (content instanceof Node) {
							if (td.firstChild !== content)
								td.replaceChildren(content);
						}
						else if (td.textContent !== String(content ?? '–')) {
							td.textContent = content ?? '–';
						}
					});
					if (body.rows[at] !== row)
						body.insertBefore(row, body.rows[at] ?? null);
				});
				if (wide.textContent != none)
					wide.textContent = none;
				if (data.length)
					placeholder.remove();
				else if (!placeholder.parentNode)
					body.append(placeholder);
			}
		};
	}
});
