/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The printf functions that wifirrd calls, for the static binary of a package:
 * libc's bring the formatting of floating point numbers along, which is in
 * software on MIPS. Flags 0; width; precision, also *, of %s; %c %d %s %u %x %%
 * with l, ll and z. Anything else ends the program: the test has every format.
 */
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sink {
	char *at, *end;		/* end: the byte for the terminating zero */
	int written;		/* bytes, also those that did not fit */
};

static void put(struct sink *s, const char *text, size_t len)
{
	s->written += (int)len;
	if (len > (size_t)(s->end - s->at))
		len = s->end - s->at;
	if (len)
		memcpy(s->at, text, len);
	s->at += len;
}

static void pad(struct sink *s, char with, int width, size_t len)
{
	while (width-- > (int)len)
		put(s, &with, 1);
}

static void put_number(struct sink *s, uint64_t value, bool negative, unsigned base, bool zeros, int width)
{
	char digits[24], *p = digits + sizeof(digits);

	do
		*--p = "0123456789abcdef"[value % base];
	while (value /= base);
	if (negative && zeros) {
		put(s, "-", 1);
		width--;
	} else if (negative) {
		*--p = '-';
	}
	pad(s, zeros ? '0' : ' ', width, digits + sizeof(digits) - p);
	put(s, p, digits + sizeof(digits) - p);
}

static int64_t integer(va_list *args, char conversion, int longs)
{
	if (conversion == 'd')
		return longs == 2 ? va_arg(*args, long long) : longs ? va_arg(*args, long) : va_arg(*args, int);
	return (int64_t)(longs == 2 ? va_arg(*args, unsigned long long) :
			 longs ? va_arg(*args, unsigned long) : va_arg(*args, unsigned));
}

static int format(struct sink *s, const char *fmt, va_list *args)
{
	while (*fmt) {
		size_t plain = strcspn(fmt, "%"), len;
		int width = 0, precision = -1, longs = 0;
		bool zeros;
		const char *text;
		int64_t value;
		char c;

		put(s, fmt, plain);
		fmt += plain;
		if (!*fmt++)
			break;
		zeros = *fmt == '0';
		for (; *fmt >= '0' && *fmt <= '9'; fmt++)
			width = 10 * width + *fmt - '0';
		if (*fmt == '.') {
			fmt++;
			precision = 0;
			if (*fmt == '*') {
				fmt++;
				precision = va_arg(*args, int);
			}
			for (; *fmt >= '0' && *fmt <= '9'; fmt++)
				precision = 10 * precision + *fmt - '0';
		}
		for (; *fmt == 'l' || *fmt == 'z'; fmt++)
			longs++;	/* size_t is as long as long */
		switch (*fmt) {
		case 's':
			text = va_arg(*args, const char *);
			len = precision < 0 ? strlen(text) : strnlen(text, precision);
			pad(s, ' ', width, len);
			put(s, text, len);
			break;
		case 'c':
			c = (char)va_arg(*args, int);
			put(s, &c, 1);
			break;
		case 'd':
		case 'u':
		case 'x':
			value = integer(args, *fmt, longs);
			put_number(s, *fmt == 'd' && value < 0 ? -(uint64_t)value : (uint64_t)value, *fmt == 'd' && value < 0,
				   *fmt == 'x' ? 16 : 10, zeros, width);
			break;
		case '%':
			put(s, "%", 1);
			break;
		default:
			abort();
		}
		fmt++;
	}
	return s->written;
}

int vsnprintf(char *restrict buf, size_t size, const char *restrict fmt, va_list args)
{
	char none;
	struct sink s = { .at = size ? buf : &none };
	va_list copy;
	int written;

	s.end = size ? buf + size - 1 : s.at;
	va_copy(copy, args);
	written = format(&s, fmt, &copy);
	va_end(copy);
	*s.at = 0;
	return written;
}

int snprintf(char *restrict buf, size_t size, const char *restrict fmt, ...)
{
	va_list args;
	int written;

	va_start(args, fmt);
	written = vsnprintf(buf, size, fmt, args);
	va_end(args);
	return written;
}
