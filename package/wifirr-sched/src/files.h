/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small text files, without stdio: in a static binary, stdio takes more space
 * than all other code that reads them.
 */
#ifndef WIFIRR_FILES_H
#define WIFIRR_FILES_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Calls found for each entry of a directory whose name begins with prefix and
 * ends with suffix, in no particular order, until found returns true.
 */
void files_each(const char *directory, const char *prefix, const char *suffix,
		bool (*found)(void *data, const char *path), void *data);

struct lines {
	int fd;		/* owned by the caller */
	size_t size;	/* bytes in text, including the line that was returned */
	size_t taken;	/* bytes of that line */
	bool cut;	/* there is more of it */
	char text[512];
};

/* Returns the next line without its line end, or NULL at the end of the file. A line that is too long is cut. */
char *lines_next(struct lines *lines);

/* Whether /sys/class/net/DEVICE/FILE is there. */
bool device_has(const char *device, const char *file);

/*
 * Takes a number off the beginning of *line. Returns false if there is none, or
 * if it is larger than max.
 */
bool line_number(char **line, unsigned max, unsigned *number);

#endif
