// SPDX-License-Identifier: Apache-2.0

// Command replay loads a web page like a recorded browser, and does nothing with it: it requests the same objects in the
// same order, each when the data that the request waited for has arrived. It takes a hundredth of a browser's processor time.
//
//	replay -protocol h1|h2 -page NAME RECORDINGS URL
//
// RECORDINGS is lab/recordings.json, URL the origin below which lab/pages.py has put the page. It writes one JSON
// object: ms from the start to the last byte, objects, bytes and connections.
package main
