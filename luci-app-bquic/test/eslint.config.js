// SPDX-License-Identifier: Apache-2.0
'use strict';

const path = require('node:path');

// LuCI wraps each file in a function whose arguments are the modules named by 'require'.
const luci = [ '_', 'N_', 'E', 'L', 'address', 'ask', 'baseclass', 'common', 'dom', 'fields', 'form', 'graph', 'poll', 'profile', 'rpc', 'scheduling', 'table', 'taking', 'uci', 'ui', 'view', 'widgets' ];
const browser = [ 'Blob', 'MutationObserver', 'Node', 'URL', 'btoa', 'crypto', 'document', 'performance', 'setTimeout' ];

module.exports = [ {
	basePath: path.resolve(__dirname, '..'),
	files: [ 'htdocs/**/*.js' ],
	languageOptions: {
		ecmaVersion: 2022,
		sourceType: 'script',
		parserOptions: { ecmaFeatures: { globalReturn: true } },
		globals: Object.fromEntries([ ...luci, ...browser ].map((name) => [ name, 'readonly' ]))
	},
	linterOptions: { reportUnusedDisableDirectives: 'error' },
	rules: {
		'no-undef': 'error',
		'no-unused-vars': [ 'error', { caughtErrors: 'none', args: 'none' } ],
		'no-dupe-keys': 'error',
		'no-dupe-else-if': 'error',
		'no-unreachable': 'error',
		'no-constant-condition': 'error',
		'no-fallthrough': 'error',
		'no-redeclare': 'error',
		'no-const-assign': 'error',
		'no-eval': 'error',
		'no-implied-eval': 'error',
		'no-new-func': 'error',
		'prefer-const': 'error',
		'no-var': 'error',
		'eqeqeq': 'off',
		// LuCI takes a lone string as children, and these properties, as markup.
		'no-restricted-properties': [ 'error', ...[ 'innerHTML', 'outerHTML', 'insertAdjacentHTML' ].map((property) => ({ property })) ],
		'no-restricted-syntax': [ 'error', {
			selector: 'CallExpression[callee.name="E"] > :nth-child(3):not(ArrayExpression):not(CallExpression)',
			message: 'E() takes a lone string as markup: pass its children as an array.'
		}, {
			selector: 'CallExpression[callee.object.name="dom"][callee.property.name=/^(content|append)$/] > :nth-child(2):matches(Literal, TemplateLiteral, BinaryExpression, Identifier)',
			message: 'dom takes a lone string as markup: pass an array.'
		} ]
	}
} ];
