/* SPDX-License-Identifier: Apache-2.0 */
/* Prints what the printf functions make of every format in wifirrd. With libc's and with printf.c, it must be the same. */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#define SAY(...) do { \
	for (size_t size = 0; size < sizeof(buf); size += size < 24 ? 1 : 97) { \
		memset(buf, '#', sizeof(buf)); \
		printf("%d [%s]\n", snprintf(size ? buf : NULL, size, __VA_ARGS__), size ? buf : "-"); \
		if (buf[size] != '#') \
			return 1; \
	} \
} while (0)

int main(void)
{
	static const int ints[] = { 0, 1, -1, 9, 10, 42, -4711, INT_MAX, INT_MIN };
	char buf[256];

	for (size_t i = 0; i < sizeof(ints) / sizeof(ints[0]); i++) {
		long long big = ints[i] * 0x80000001LL + (long long)i;

		SAY("%d %u %x %c", ints[i], (unsigned)ints[i], (unsigned)ints[i], 'a' + (int)i);
		SAY("%lld %llu %06ld", big, (unsigned long long)big, (long)ints[i]);
		SAY("%02x:%04x:%08x", (unsigned)ints[i], (unsigned)ints[i], (unsigned)ints[i]);
		SAY("%zu%%", (size_t)big);
		SAY("%.*s|%s", ints[i] % 7, "precise", "");
	}
	SAY("%s", "a text that is longer than the buffers at first, with a % in it");
	SAY("%d.%d.%d.%d", 192, 0, 2, 1);
	SAY("100 %% of %s", "it");
	SAY("%s", "");
	return 0;
}
