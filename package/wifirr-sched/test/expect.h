/* SPDX-License-Identifier: Apache-2.0 */
/* How a unit test compares values, and what it prints. */
#include <errno.h>
#include <stdio.h>

static unsigned failures;

static void expect(const char *what, long got, long wanted)
{
	if (got == wanted)
		return;
	printf("%s: %s: %ld, not %ld\n", program_invocation_short_name, what, got, wanted);
	failures++;
}

/* Returns the exit code. */
static int verdict(void)
{
	printf("%s: %s\n", program_invocation_short_name, failures ? "FAILED" : "ok");
	return failures ? 1 : 0;
}
