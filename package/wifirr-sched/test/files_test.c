/* SPDX-License-Identifier: Apache-2.0 */
/* Compares lines of files with their source: any lengths, read in any pieces. */
#include <assert.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "files.h"

#define LINES 200
#define LONGEST 1500

static char expected[LINES][LONGEST + 1];

static void test_lines(unsigned seed)
{
	unsigned longest = sizeof(((struct lines *)0)->text) - 2;	/* beside the end of a line */
	struct lines lines = { 0 };
	int fds[2], status;
	char *line;
	pid_t pid;

	srand(seed);
	for (unsigned i = 0; i < LINES; i++) {
		unsigned length = rand() % (rand() % 4 ? 40 : LONGEST);

		for (unsigned k = 0; k < length; k++)
			expected[i][k] = 'a' + rand() % 26;
		expected[i][length] = '\0';
	}
	assert(pipe(fds) == 0);
	pid = fork();
	if (pid == 0) {	/* in pieces */
		for (unsigned i = 0; i < LINES; i++) {
			size_t length = strlen(expected[i]), half = length ? rand() % length : 0;

			if (write(fds[1], expected[i], half) < 0 || write(fds[1], expected[i] + half, length - half) < 0 ||
			    (i < LINES - 1 && write(fds[1], "\r\n", 2) < 0))
				_exit(1);
		}
		_exit(0);
	}
	close(fds[1]);
	lines.fd = fds[0];
	for (unsigned i = 0; i < LINES; i++) {
		line = lines_next(&lines);
		if (!line) {
			assert(i == LINES - 1 && !expected[i][0]);	/* an empty last line does not count */
			break;
		}
		/* a line that is too long is cut */
		assert(strncmp(line, expected[i], longest) == 0);
		assert(strlen(expected[i]) > longest || strcmp(line, expected[i]) == 0);
	}
	assert(!lines_next(&lines) && !lines_next(&lines));
	close(fds[0]);
	assert(waitpid(pid, &status, 0) == pid && status == 0);
}

static void test_numbers(void)
{
	static const struct {
		const char *text;
		unsigned max;
		bool is;
		unsigned number;
	} cases[] = {
		{ "7", 15, true, 7 }, { " 7 8", 15, true, 7 }, { "16", 15, false, 0 }, { "", 15, false, 0 }, { "-1", 15, false, 0 },
		{ "+1", 15, false, 0 }, { "7x", 15, false, 0 }, { "4294967295", UINT_MAX, true, UINT_MAX },
		{ "99999999999999999999999", UINT_MAX, false, 0 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		char text[32], *line = text;
		unsigned number = 0;

		snprintf(text, sizeof(text), "%s", cases[i].text);
		assert(line_number(&line, cases[i].max, &number) == cases[i].is && number == cases[i].number);
	}
}

static bool count(void *data, const char *path)
{
	assert(strstr(path, "/phy"));
	return ++*(int *)data == 2;
}

static void test_each(void)
{
	char dir[] = "/tmp/files-test.XXXXXX", path[64];
	static const char *const names[] = { "phy0", "phy1", "phy2", "other", "phy" };
	int n = 0;

	assert(mkdtemp(dir));
	for (size_t i = 0; i < 5; i++) {
		FILE *f;

		snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
		f = fopen(path, "w");
		assert(f && fclose(f) == 0);
	}
	files_each(dir, "phy", "", count, &n);
	assert(n == 2);	/* it stops when told to */
	n = -10;
	files_each(dir, "phy", "", count, &n);
	assert(n == -6);
	n = -10;
	files_each(dir, "phy", "1", count, &n);
	assert(n == -9);
	files_each("/nonexistent", "phy", "", count, &n);
	assert(n == -9);
	for (size_t i = 0; i < 5; i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
		unlink(path);
	}
	rmdir(dir);
}

int main(void)
{
	for (unsigned seed = 0; seed < 50; seed++)
		test_lines(seed);
	test_numbers();
	test_each();
	puts("files_test: passed");
	return 0;
}
