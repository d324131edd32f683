/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small text files, without stdio: in a static binary that takes more than the
 * rest of what reads them.
 */
#ifndef WIFIRR_FILES_H
#define WIFIRR_FILES_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Calls found for each entry of a directory whose name begins with prefix and
 * ends with suffix, in no order, until it returns true. Returns whether it did.
 */
bool files_each(const char *directory, const char *prefix, const char *suffix,
		bool (*found)(void *data, const char *path), void *data);

struct lines {
	int fd;		/* the caller's */
	size_t size;	/* bytes in text, behind the line that was returned */
	size_t taken;	/* of that line */
	char text[512];
};

/* Returns the next line without its end, NULL at the end of the file. Of one that is too long, the beginning. */
char *lines_next(struct lines *lines);

/*
 * The next words of a line are to be numbers: takes one off *line. Returns false
 * without one, or with one that is larger than max.
 */
bool line_number(char **line, unsigned max, unsigned *number);

#endif
