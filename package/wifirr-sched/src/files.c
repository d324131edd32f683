/* SPDX-License-Identifier: Apache-2.0 */
#include "files.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void files_each(const char *directory, const char *prefix, const char *suffix,
		bool (*found)(void *data, const char *path), void *data)
{
	DIR *dir = opendir(directory);
	struct dirent *entry;
	bool done = false;

	while (dir && !done && (entry = readdir(dir))) {
		size_t length = strlen(entry->d_name), end = strlen(suffix);
		char path[PATH_MAX];

		if (strncmp(entry->d_name, prefix, strlen(prefix)) != 0 || length < strlen(prefix) + end ||
		    strcmp(entry->d_name + length - end, suffix) != 0)
			continue;
		snprintf(path, sizeof(path), "%s/%s", directory, entry->d_name);
		done = found(data, path);
	}
	if (dir)
		closedir(dir);
}

/* Reads until there is a whole line, or no more room. */
static void fill(struct lines *l)
{
	ssize_t n;

	while (l->size < sizeof(l->text) - 1 && !memchr(l->text, '\n', l->size)) {
		n = read(l->fd, l->text + l->size, sizeof(l->text) - 1 - l->size);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return;
		l->size += n;
	}
}

char *lines_next(struct lines *l)
{
	bool rest;
	char *end;

	do {
		rest = l->cut;
		l->size -= l->taken;
		memmove(l->text, l->text + l->taken, l->size);
		fill(l);
		end = memchr(l->text, '\n', l->size);
		l->cut = !end && l->size == sizeof(l->text) - 1;
		l->taken = end ? (size_t)(end - l->text) + 1 : l->size;
	} while (rest && l->size);
	if (!l->size)
		return NULL;
	if (!end)
		end = l->text + l->size;
	*end = '\0';
	l->text[strcspn(l->text, "\r")] = '\0';
	return l->text;
}

bool device_has(const char *device, const char *file)
{
	char path[64];

	snprintf(path, sizeof(path), "/sys/class/net/%s/%s", device, file);
	return access(path, F_OK) == 0;
}

bool line_number(char **line, unsigned max, unsigned *number)
{
	unsigned long value;
	char *end;

	*line += strspn(*line, " ");
	if (!isdigit((unsigned char)**line))
		return false;
	errno = 0;
	value = strtoul(*line, &end, 10);
	if (errno || value > max || (*end && *end != ' '))
		return false;
	*line = end;
	*number = value;
	return true;
}
