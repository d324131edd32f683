/* SPDX-License-Identifier: Apache-2.0 */
/* Reads options from the command line and from a file. */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "wifirrd.h"

#define OPTIONS_SIZE 8192		/* largest file of options, bytes */

const char *const mode_words[] = { "backlog", "paper", NULL };
const char *const engage_words[] = { "auto", "always", "dry-run", NULL };

static int usage(void)
{
	static const char text[] =
	       "Usage: wifirrd --device NAME [options]\n"
	       "       wifirrd [--control PATH | --device NAME] status|clients|history|pause|resume|metrics\n"
	       "       wifirrd check NAME\n"
	       "       wifirrd [options] check\n"
	       "       wifirrd restore\n"
	       "\n"
	       "Saves airtime where many clients share a WiFi link: adjusts their contention windows\n"
	       "where they aggregate frames, else serves only K of them at full speed at a time, in\n"
	       "turn. check NAME tests a device's driver, firmware and hostapd; without a name, it\n"
	       "checks only the options. restore undoes what killed daemons have left changed.\n"
	       "\n"
	       "  --device NAME         device whose egress is scheduled\n"
	       "  --backend B           auto, airtime or htb (auto: airtime where the driver supports it)\n"
	       "  --mode M              backlog or paper (backlog: clients with demand take turns,\n"
	       "                        staggered; paper: all clients, in fixed groups)\n"
	       "  --engage E            auto, always or dry-run (auto: only when it can help)\n"
	       "  --active K            clients at full speed at a time, 1..512 (airtime 1,\n"
	       "                        htb 3; paper: 5)\n"
	       "  --slot MS             a client's turn, 10..60000 ms (airtime 4800,\n"
	       "                        htb 2400; paper: 1600)\n"
	       "  --trickle KBIT        rate of a waiting client, kbit/s, htb only (20; paper: 100)\n"
	       "  --rate KBIT           rate of the link, kbit/s, htb only (the stations' expected\n"
	       "                        throughput less 10 %; must be given if there is none)\n"
	       "  --weights A,B         airtime weights of active and waiting clients (384,1)\n"
	       "  --windows W           auto or off; auto: larger contention windows in a crowd (auto)\n"
	       "  --rts N               RTS threshold in a crowd of 802.11n or later, bytes; off;\n"
	       "                        auto: 500 where collisions cost more than RTS (auto)\n"
	       "  --demand-bytes N      a client with more than this queued has demand, bytes (3000)\n"
	       "  --demand-rate KBIT    a client that receives more than this has demand, kbit/s (60)\n"
	       "  --busy-threshold P    engage only when the channel is busier than this, percent (50)\n"
	       "  --engage-delay MS     wait this long before releasing and, where the channel's use is\n"
	       "                        not known, before engaging, ms (1000)\n"
	       "  --match M             mac or ip; ip where clients are behind one next hop (mac)\n"
	       "  --always ADDR         never throttle this client (MAC, with --match ip: IP; repeatable)\n"
	       "  --ignore ADDR         the same, and its demand does not count (repeatable)\n"
	       "  --exempt-voice        never throttle DSCP EF and VOICE-ADMIT, htb only\n"
	       "  --options FILE        file with more of these options, one per line, such as\n"
	       "                        slot=2400; SIGHUP makes the daemon read it again\n"
	       "  --control PATH        control socket (/var/run/wifirr/NAME.sock)\n"
	       "  --verbose             log more; twice: log every change\n"
	       "  --help                this text\n"
	       "  --version             version\n";

	return write(STDOUT_FILENO, text, sizeof(text) - 1) < 0 ? EXIT_FAILED : 0;
}

static struct {
	const char *file;
	unsigned line;		/* of the option being read; 0: the command line */
	char *reason;		/* the first mistake; "": none yet */
	size_t size;
} reading;

static void bad(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void bad(const char *fmt, ...)
{
	size_t n = 0;
	va_list args;

	if (*reading.reason)
		return;
	if (reading.line)
		n = snprintf(reading.reason, reading.size, "%s:%u: ", reading.file, reading.line);
	if (n >= reading.size)
		return;
	va_start(args, fmt);
	vsnprintf(reading.reason + n, reading.size - n, fmt, args);
	va_end(args);
}

static unsigned number(const char *flag, const char *text, unsigned min, unsigned max)
{
	unsigned long value;
	char *end;

	value = strtoul(text, &end, 10);	/* what is too large becomes ULONG_MAX */
	if (!isdigit((unsigned char)text[0]) || *end || value < min || value > max)
		bad("--%s %s: must be a whole number from %u to %u", flag, text, min, max);
	return value;
}

int word_find(const char *text, const char *const *words, char all[WORDS_TEXT])
{
	size_t n = 0;

	for (int i = 0; words[i]; i++)
		if (strcmp(text, words[i]) == 0)
			return i;
	for (int i = 0; words[i]; i++)
		n += snprintf(all + n, WORDS_TEXT - n, "%s%s", i ? (words[i + 1] ? ", " : " or ") : "", words[i]);
	return -1;
}

static int choice(const char *flag, const char *text, const char *const *words)
{
	char all[WORDS_TEXT];
	int place = word_find(text, words, all);

	if (place < 0)
		bad("--%s %s: must be %s", flag, text, all);
	return place;
}

static void exempt(struct config *c, const char *flag, const char *text, unsigned flags)
{
	struct addr addr;

	if (addr_parse(&addr, text) < 0)
		bad("--%s %s: not a MAC, IPv4 or IPv6 address", flag, text);
	for (unsigned i = 0; i < c->exempt_count; i++)
		if (memcmp(&c->exempt[i].addr, &addr, sizeof(addr)) == 0)
			bad("--%s %s: given twice, in always or ignore", flag, text);
	if (c->exempt_count == EXEMPTIONS_MAX) {
		bad("--%s %s: at most %u addresses are possible", flag, text, EXEMPTIONS_MAX);
		return;
	}
	c->exempt[c->exempt_count].addr = addr;
	c->exempt[c->exempt_count++].flags = flags;
}

/* An address of the other kind would exempt nobody. */
static void check_kind(const struct config *c)
{
	bool ip = c->match == MATCH_IP;
	char text[ADDR_TEXT];

	for (unsigned i = 0; i < c->exempt_count; i++)
		if (ip == (c->exempt[i].addr.type == ADDR_MAC))
			bad("--%s %s: must be %s address, as match is %s", c->exempt[i].flags == POLICY_CLIENT_ALWAYS ? "always" : "ignore",
			    addr_text(&c->exempt[i].addr, text), ip ? "an IP" : "a MAC", ip ? "ip" : "mac");
}

/* The name goes into nft's input, so it must not contain characters that need quoting. */
static void set_device(struct config *c, const char *name)
{
	if (!*name || strlen(name) >= sizeof(c->device) || name[strspn(name,
	    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.@-")])
		bad("--device %s: not a device name", name);
	snprintf(c->device, sizeof(c->device), "%s", name);
}

static void set_weights(struct config *c, const char *text)
{
	char active[8];
	const char *comma = strchr(text, ',');

	if (!comma || (size_t)(comma - text) >= sizeof(active)) {
		bad("--weights %s: must be two numbers, ACTIVE,WAITING", text);
		return;
	}
	snprintf(active, sizeof(active), "%.*s", (int)(comma - text), text);
	c->weight_active = number("weights", active, 1, 65535);
	c->weight_waiting = number("weights", comma + 1, 1, 65535);
}

static void set_rts(struct config *c, const char *flag, const char *text)
{
	if (strcmp(text, "auto") == 0)
		c->rts = RTS_AUTO;
	else if (strcmp(text, "off") == 0)
		c->rts = RTS_OFF;
	else
		c->rts = number(flag, text, 0, 65535);
}

/* In the order of options[]. */
enum {
	OPT_DEVICE, OPT_BACKEND, OPT_MODE, OPT_ENGAGE, OPT_ACTIVE, OPT_SLOT, OPT_TRICKLE, OPT_RATE,
	OPT_WEIGHTS, OPT_WINDOWS, OPT_RTS, OPT_DEMAND_BYTES, OPT_DEMAND_RATE, OPT_BUSY, OPT_DELAY, OPT_MATCH, OPT_ALWAYS,
	OPT_IGNORE, OPT_VOICE, OPT_OPTIONS, OPT_CONTROL, OPT_VERBOSE, OPT_HELP, OPT_VERSION, OPTIONS,
};

/* getopt_long() would pull in stdio, a large part of a static binary. */
static const char *const options[] = {
	"device", "backend", "mode", "engage", "active", "slot", "trickle", "rate",
	"weights", "windows", "rts", "demand-bytes", "demand-rate", "busy-threshold", "engage-delay", "match", "always",
	"ignore", "exempt-voice", "options", "control", "verbose", "help", "version",
};

static bool takes_value(int opt)
{
	return opt < OPT_VERBOSE && opt != OPT_VOICE;
}

/* Returns which option an argument is, and the value after "="; OPTIONS: not an option. */
static int find_option(const char *text, const char **value)
{
	size_t len = strcspn(text, "=");
	int opt;

	*value = NULL;
	if (strncmp(text, "--", 2) != 0)
		return OPTIONS;
	for (opt = 0; opt < OPTIONS; opt++)
		if (strlen(options[opt]) == len - 2 && strncmp(options[opt], text + 2, len - 2) == 0)
			break;
	if (text[len])
		*value = text + len + 1;
	return *value && !takes_value(opt) ? OPTIONS : opt;
}

/*
 * Moves arguments that are not options to the end, and returns the index of the first one.
 * file: the one that --options names.
 */
static int read_flags(struct config *c, const char **file, int argc, char **argv)
{
	static const char *const backends[] = { "auto", "airtime", "htb", NULL };
	static const char *const matches[] = { "mac", "ip", NULL };
	static const char *const windows[] = { "off", "auto", NULL };
	int at = 1, end = argc;

	while (at < end && !*reading.reason) {
		char *text = argv[at];
		const char *flag, *value;
		int opt = find_option(text, &value);

		if (text[0] != '-') {
			memmove(argv + at, argv + at + 1, (argc - at - 1) * sizeof(*argv));
			argv[argc - 1] = text;
			end--;
			continue;
		}
		at++;
		flag = opt < OPTIONS ? options[opt] : "";
		if (takes_value(opt) && !value) {
			if (at == end) {
				bad("%s: needs a value", text);
				break;
			}
			value = argv[at++];
		}
		if (reading.line && (opt == OPT_DEVICE || opt == OPT_OPTIONS || opt == OPT_CONTROL || opt == OPT_HELP ||
				   opt == OPT_VERSION)) {
			bad("--%s: only on the command line", flag);
			break;
		}
		switch (opt) {
		case OPT_DEVICE: set_device(c, value); break;
		case OPT_BACKEND: c->backend = choice(flag, value, backends); break;
		case OPT_MODE: c->policy.mode = choice(flag, value, mode_words); break;
		case OPT_ENGAGE: c->policy.engage = choice(flag, value, engage_words); break;
		case OPT_ACTIVE: c->active = number(flag, value, 1, POLICY_CLIENTS_MAX); break;
		case OPT_SLOT: c->slot_ms = number(flag, value, 10, 60000); break;
		case OPT_TRICKLE: c->trickle_kbit = number(flag, value, 1, 1000000); break;
		case OPT_RATE: c->rate_kbit = number(flag, value, 100, 10000000); break;
		case OPT_WEIGHTS: set_weights(c, value); break;
		case OPT_WINDOWS: c->windows = choice(flag, value, windows); break;
		case OPT_RTS: set_rts(c, flag, value); break;
		case OPT_DEMAND_BYTES: c->policy.demand_bytes = number(flag, value, 0, 100000000); break;
		case OPT_DEMAND_RATE: c->policy.demand_bps = 1000 * number(flag, value, 0, 1000000); break;
		case OPT_BUSY: c->policy.busy_permille = 10 * number(flag, value, 0, 100); break;
		case OPT_DELAY: c->policy.engage_delay_ms = number(flag, value, 0, 3600000); break;
		case OPT_MATCH: c->match = choice(flag, value, matches); break;
		case OPT_ALWAYS: exempt(c, flag, value, POLICY_CLIENT_ALWAYS); break;
		case OPT_IGNORE: exempt(c, flag, value, POLICY_CLIENT_IGNORED); break;
		case OPT_VOICE: c->exempt_voice = true; break;
		case OPT_OPTIONS: *file = value; break;
		case OPT_CONTROL:
			if (strlen(value) >= sizeof(c->control))
				bad("--control: path longer than %zu characters", sizeof(c->control) - 1);
			snprintf(c->control, sizeof(c->control), "%s", value);
			break;
		case OPT_VERBOSE: c->verbose++; break;
		case OPT_HELP: exit(usage());
		case OPT_VERSION: print(STDOUT_FILENO, "wifirrd %s\n", WIFIRR_VERSION); exit(0);
		default: bad("%s: unknown option (see --help)", text);
		}
	}
	return end;
}

static void read_file(struct config *c, const char *file)
{
	static char text[OPTIONS_SIZE + 3];	/* the file, two dashes in front and a final NUL */
	char *line = text + 2, *end;
	int fd = open(file, O_RDONLY | O_CLOEXEC);
	size_t size = 0;
	ssize_t n;

	if (fd < 0) {
		bad("--options %s: %s", file, strerror(errno));
		return;
	}
	while ((n = read(fd, line + size, OPTIONS_SIZE - size)) > 0)
		size += n;
	close(fd);
	if (n < 0)
		bad("--options %s: %s", file, strerror(errno));
	if (size == OPTIONS_SIZE || memchr(line, '\0', size))
		bad("--options %s: must be a text file of less than %d bytes", file, OPTIONS_SIZE);
	line[size] = '\0';
	reading.file = file;
	for (reading.line = 1; *line && !*reading.reason; reading.line++, line = end) {
		char *argv[] = { "wifirrd", line - 2, NULL };

		end = line + strcspn(line, "\n");
		if (*end)
			*end++ = '\0';
		if (!*line || *line == '#')
			continue;
		memcpy(line - 2, "--", 2);	/* overwrites text already processed */
		read_flags(c, NULL, 2, argv);
	}
	reading.line = 0;
}

void options_turns(struct config *c, bool htb)
{
	struct policy_config defaults;

	policy_defaults(&defaults, c->policy.mode, htb);
	c->policy.active = c->active ? c->active : defaults.active;
	c->policy.slot_ms = c->slot_ms ? c->slot_ms : defaults.slot_ms;
	c->policy.trickle = htb;
}

int options_read(struct config *c, int argc, char **argv, char *reason, size_t size)
{
	const char *file = NULL;
	int first;

	*reason = '\0';
	reading.reason = reason;
	reading.size = size;
	reading.line = 0;
	*c = (struct config){ .weight_active = 384, .weight_waiting = 1, .windows = true, .rts = RTS_AUTO };
	policy_defaults(&c->policy, POLICY_BACKLOG, false);
	first = read_flags(c, &file, argc, argv);
	if (file && !*reason)
		read_file(c, file);
	options_turns(c, c->backend == BACKEND_HTB);
	if (!c->trickle_kbit)
		c->trickle_kbit = c->policy.mode == POLICY_PAPER ? 100 : 20;
	if (c->rate_kbit && c->trickle_kbit >= c->rate_kbit)
		bad("--trickle %u: must be below --rate %u", c->trickle_kbit, c->rate_kbit);
	check_kind(c);
	if (!c->control[0] && c->device[0])
		snprintf(c->control, sizeof(c->control), RUN_DIR "/%s.sock", c->device);
	return *reason ? -1 : first;
}
