/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Assigns packets to classes by the client's address.
 *
 * First choice: a map in a netdev egress chain, in a table of our own, sets the
 * packet's mark to its class id, and one fw filter reads the mark. This replaces
 * the mark of known clients' packets at the last hook before the device, after
 * routing (pbr, mwan3) has used it. (skb->priority would not last: drivers without
 * their own queues overwrite it.)
 *
 * Second choice, where the kernel has no egress hook or no fw filter: u32
 * filters, hashed by the address's last byte.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <libmnl/libmnl.h>
#include <linux/if_ether.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/pkt_cls.h>
#include <linux/rtnetlink.h>

#include "files.h"
#include "nl80211.h"
#include "wifirrd.h"

#define NFT_PATIENCE 30000	/* for nft: a router that boots is busy, ms */
#define NFT_LOOK 500		/* between looks whether the daemon is to end, ms */
#define LOOK_MS 900		/* between looks whether the table is still there: at each tick while there is no crowd */
#define U32_DIVISOR 256

/* Priorities of our qdisc's filters. */
enum { PRIO_VOICE_IPV4 = 1, PRIO_VOICE_IPV6, PRIO_FW, PRIO_U32_IPV4, PRIO_U32_IPV6 };

/* u32 knows only offsets from the network header: the destination MAC ends 8
 * bytes before it. Aligned to 4 for CPUs that require it. */
#define MAC_HIGH_OFFSET (-16)
#define MAC_LOW_OFFSET (-12)
#define IPV4_DST_OFFSET 16
#define IPV6_DST_OFFSET 24

static struct {
	enum { NONE, NFT, U32 } by;
	struct mnl_socket *nl;		/* the backend's route socket */
	char table[64];
	uint64_t looked_at;		/* at the table, ms */
	/* elements that the next flush adds or deletes */
	char *script;
	size_t script_len, script_size;
} cl;

/* "wlan0-1" becomes "wifirr_wlan0_2d1": nft allows no '-' or '.' in a name. */
static void name_table(const char *device)
{
	size_t n = snprintf(cl.table, sizeof(cl.table), "wifirr_");

	for (; *device && n + 4 < sizeof(cl.table); device++) {
		bool plain = (*device >= '0' && *device <= '9') || (*device >= 'a' && *device <= 'z') ||
			(*device >= 'A' && *device <= 'Z');

		n += snprintf(cl.table + n, sizeof(cl.table) - n, plain ? "%c" : "_%02x", (unsigned char)*device);
	}
}

/*
 * "nft -f -" takes a while on a busy router, and turns must not wait for it: it
 * runs in the background, one process at a time.
 */
static struct {
	pid_t pid;		/* 0: not running */
	struct watch out;
	uint64_t until;		/* when to kill it, ms */
	char said[128];
	size_t got;
} run;

/* removes: the table, and may outlive this process. Any other nft would set up what nobody removes then. */
static int nft_begin(const char *script, size_t len, bool removes)
{
	int in = memfd_create("nft", MFD_CLOEXEC), out[2];
	const char *why;
	sigset_t none;

	if (in < 0)
		return -1;
	if (write(in, script, len) != (ssize_t)len || lseek(in, 0, SEEK_SET) < 0 || pipe2(out, O_CLOEXEC) < 0) {
		close(in);
		return -1;
	}
	run.pid = fork();
	if (run.pid == 0) {
		if (!removes)
			prctl(PR_SET_PDEATHSIG, SIGKILL);
		sigemptyset(&none);
		sigprocmask(SIG_SETMASK, &none, NULL);
		if (dup2(in, STDIN_FILENO) >= 0 && dup2(out[1], STDOUT_FILENO) >= 0 && dup2(out[1], STDERR_FILENO) >= 0)
			execlp("nft", "nft", "-f", "-", (char *)NULL);
		why = strerror(errno);
		_exit(write(STDERR_FILENO, why, strlen(why)) < 0 ? EXIT_FAILURE : EXIT_USAGE);
	}
	close(in);
	close(out[1]);
	if (run.pid < 0) {
		close(out[0]);
		run.pid = 0;
		return -1;
	}
	fcntl(out[0], F_SETFL, O_NONBLOCK);
	run.out.fd = out[0];
	run.until = now_ms() + (removes ? NFT_REMOVE_WAIT : NFT_PATIENCE);
	run.got = 0;
	return 0;
}

/* Reads nft's output. True: nft has closed it, failed, or run out of time. */
static bool nft_said_all(void)
{
	char rest[64];
	ssize_t n;

	do {
		bool room = run.got + 1 < sizeof(run.said);

		n = read(run.out.fd, room ? run.said + run.got : rest, room ? sizeof(run.said) - 1 - run.got : sizeof(rest));
		if (n > 0 && room)
			run.got += n;
	} while (n > 0 || (n < 0 && errno == EINTR));
	return n == 0 || errno != EAGAIN || now_ms() >= run.until;
}

/* Waits for nft to end; kills it if it is out of time. -1: it failed, with its first line of output in run.said. */
static int nft_end(void)
{
	int status;

	if (now_ms() >= run.until)
		kill(run.pid, SIGKILL);
	close(run.out.fd);
	while (waitpid(run.pid, &status, 0) < 0 && errno == EINTR)
		;
	run.pid = 0;
	run.said[run.got] = '\0';
	run.said[strcspn(run.said, "\n")] = '\0';
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -1;
}

/*
 * Runs nft and waits for it: at start and stop, when there is nothing else to do. First
 * kills an nft that still runs: it would change the table that this one makes or removes.
 * When the time is over, this one is killed, or, if it removes the table, left to end by itself. It
 * is killed, too, when the daemon is to end.
 */
static int nft(const char *script, size_t len, bool removes, char *why, size_t size)
{
	struct pollfd fd = { .events = POLLIN };
	sigset_t pending;
	int rc;

	if (run.pid) {
		watch_del(&run.out);
		run.until = 0;
		nft_end();
	}
	if (nft_begin(script, len, removes) < 0) {
		snprintf(why, size, "nft: %s", strerror(errno));
		return -1;
	}
	fd.fd = run.out.fd;
	while (!nft_said_all()) {
		poll(&fd, 1, NFT_LOOK);
		sigpending(&pending);
		if (!removes && (sigismember(&pending, SIGTERM) || sigismember(&pending, SIGINT)))
			run.until = 0;
	}
	if (removes && now_ms() >= run.until) {
		snprintf(why, size, "nft is slow, and goes on by itself");
		return -1;
	}
	rc = nft_end();
	snprintf(why, size, "%s", run.said);
	return rc;
}

static int script_add(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static int script_add(const char *fmt, ...)
{
	va_list args;

	if (cl.script_size - cl.script_len < 256) {
		char *bigger = realloc(cl.script, cl.script_size + 4096);

		if (!bigger)
			return -1;
		cl.script = bigger;
		cl.script_size += 4096;
	}
	va_start(args, fmt);
	cl.script_len += vsnprintf(cl.script + cl.script_len, cl.script_size - cl.script_len, fmt, args);
	va_end(args);
	return 0;
}

static void script_free(void)
{
	free(cl.script);
	cl.script = NULL;
	cl.script_len = cl.script_size = 0;
}

static int nft_setup(struct wifirr *w, char *why, size_t size)
{
	bool ip = w->config.match == MATCH_IP;
	int rc;

	script_add("add table netdev %s\ndelete table netdev %s\ntable netdev %s {\n",
		   cl.table, cl.table, cl.table);
	if (ip)
		script_add("map ipv4 { type ipv4_addr : mark; }\nmap ipv6 { type ipv6_addr : mark; }\n");
	else
		script_add("map mac { type ether_addr : mark; }\n");
	script_add("chain egress {\ntype filter hook egress device \"%s\" priority 0; policy accept;\n",
		   w->config.device);
	if (ip)
		script_add("meta mark set ip daddr map @ipv4\nmeta mark set ip6 daddr map @ipv6\n");
	else
		script_add("ether daddr & 01:00:00:00:00:00 != 00:00:00:00:00:00 accept\n"
			   "meta mark set ether daddr map @mac\n");
	script_add("}\n}\n");
	rc = nft(cl.script, cl.script_len, false, why, size);
	script_free();
	return rc;
}

static void nft_remove(void)
{
	char script[192], why[128];

	/* adding it first makes deleting it succeed if another program already has */
	snprintf(script, sizeof(script), "add table netdev %s\ndelete table netdev %s\n", cl.table, cl.table);
	if (nft(script, strlen(script), true, why, sizeof(why)) < 0)
		logmsg(LOG_WARNING, "the nft table %s is not removed: %s", cl.table, why);
}

/* Calls cb for each object of that kind. table: only those in it; NULL: all. */
static int nft_ask(uint16_t what, uint8_t family, const char *table, mnl_cb_t cb, void *data)
{
	/* libmnl before 1.0.5 does not clear the padding of attributes */
	char buf[128] __attribute__((aligned(NLMSG_ALIGNTO))) = { 0 };
	struct mnl_socket *nl = rtnl_open(NETLINK_NETFILTER, 0);
	struct nlmsghdr *nlh = mnl_nlmsg_put_header(buf);
	struct nfgenmsg *nf;
	int rc;

	if (!nl)
		return -1;
	nlh->nlmsg_type = NFNL_SUBSYS_NFTABLES << 8 | what;
	nf = mnl_nlmsg_put_extra_header(nlh, sizeof(*nf));
	*nf = (struct nfgenmsg){ .nfgen_family = family, .version = NFNETLINK_V0 };
	if (table)
		mnl_attr_put_strz(nlh, NFTA_RULE_TABLE, table);
	rc = rtnl_ask(nl, nlh, NLM_F_DUMP, cb, data);
	mnl_socket_close(nl);
	return rc;
}

static int object(const struct nlmsghdr *nlh, void *there)
{
	(void)nlh;
	*(bool *)there = true;
	return MNL_CB_OK;
}

/* Whether our table has objects of that kind; -1: the kernel does not say. */
static int nft_has(uint16_t what)
{
	bool there = false;

	return nft_ask(what, NFPROTO_NETDEV, cl.table, object, &there) < 0 ? -1 : there;
}

void classify_remains(const struct wifirr *w)
{
	name_table(w->config.device);
	/* whose rules may be gone with the device */
	if (nft_has(NFT_MSG_GETSET) > 0)
		nft_remove();
}

/* A message for a filter of our qdisc; protocol in host order. */
static struct nlmsghdr *filter_put(char *buf, const struct wifirr *w, int type, unsigned flags,
				   unsigned prio, unsigned protocol, uint32_t handle, const char *kind)
{
	struct nlmsghdr *nlh = rtnl_tc(buf, w, type, flags, HTB_HANDLE, handle, kind);
	struct tcmsg *tc = mnl_nlmsg_get_payload(nlh);

	tc->tcm_info = TC_H_MAKE(prio << 16, htons(protocol));
	return nlh;
}

/* mask and value are in host order. */
struct u32_key {
	int offset;
	uint32_t mask, value;
};

static void u32_put(struct nlmsghdr *nlh, uint32_t class, uint32_t table, const struct u32_key *keys, unsigned n)
{
	struct {
		struct tc_u32_sel sel;
		struct tc_u32_key keys[4];
	} sel = { .sel = { .flags = TC_U32_TERMINAL, .nkeys = n } };
	struct nlattr *options = mnl_attr_nest_start(nlh, TCA_OPTIONS);

	for (unsigned i = 0; i < n; i++)
		sel.keys[i] = (struct tc_u32_key){
			.off = keys[i].offset,
			.mask = htonl(keys[i].mask),
			.val = htonl(keys[i].value & keys[i].mask),
		};
	mnl_attr_put_u32(nlh, TCA_U32_CLASSID, class);
	if (table)
		mnl_attr_put_u32(nlh, TCA_U32_HASH, table);
	mnl_attr_put(nlh, TCA_U32_SEL, sizeof(sel.sel) + n * sizeof(sel.keys[0]), &sel);
	mnl_attr_nest_end(nlh, options);
}

/* A hash table of 256 buckets, and the rule that sends every packet to it. */
static int u32_table(struct wifirr *w, unsigned prio, unsigned protocol, uint32_t table, int hash_offset,
		     char *why, size_t size)
{
	char buf[512] __attribute__((aligned(NLMSG_ALIGNTO)));
	struct tc_u32_sel link = { .hoff = hash_offset, .hmask = htonl(U32_DIVISOR - 1) };
	struct nlattr *options;
	struct nlmsghdr *nlh;
	int rc;

	nlh = filter_put(buf, w, RTM_NEWTFILTER, NLM_F_CREATE | NLM_F_EXCL, prio, protocol, table, "u32");
	options = mnl_attr_nest_start(nlh, TCA_OPTIONS);
	mnl_attr_put_u32(nlh, TCA_U32_DIVISOR, U32_DIVISOR);
	mnl_attr_nest_end(nlh, options);
	rc = rtnl_request(cl.nl, nlh, why, size);
	if (rc < 0)
		return rc;
	nlh = filter_put(buf, w, RTM_NEWTFILTER, NLM_F_CREATE | NLM_F_EXCL, prio, protocol, 0, "u32");
	options = mnl_attr_nest_start(nlh, TCA_OPTIONS);
	mnl_attr_put_u32(nlh, TCA_U32_LINK, table);
	mnl_attr_put(nlh, TCA_U32_SEL, sizeof(link), &link);
	mnl_attr_nest_end(nlh, options);
	return rtnl_request(cl.nl, nlh, why, size);
}

static const uint32_t table_v4 = 1 << 20, table_v6 = 2 << 20;	/* "1:" and "2:" in tc's notation */

static int u32_setup(struct wifirr *w, char *why, size_t size)
{
	int rc;

	if (w->config.match == MATCH_MAC)
		return u32_table(w, PRIO_U32_IPV4, ETH_P_ALL, table_v4, MAC_LOW_OFFSET, why, size);
	rc = u32_table(w, PRIO_U32_IPV4, ETH_P_IP, table_v4, IPV4_DST_OFFSET, why, size);
	if (rc < 0)
		return rc;
	return u32_table(w, PRIO_U32_IPV6, ETH_P_IPV6, table_v6, IPV6_DST_OFFSET + 12, why, size);
}

static uint32_t word(const uint8_t *b)
{
	return (uint32_t)b[0] << 24 | b[1] << 16 | b[2] << 8 | b[3];
}

/* at: which of a client's addresses, 0..ALSO_MAX */
static struct nlmsghdr *u32_client(char *buf, struct wifirr *w, uint16_t id, const struct addr *a, unsigned at,
				   int type, unsigned flags)
{
	unsigned last = a->type == ADDR_MAC ? 5 : a->type == ADDR_IPV4 ? 3 : 15;
	unsigned protocol = a->type == ADDR_MAC ? ETH_P_ALL : a->type == ADDR_IPV4 ? ETH_P_IP : ETH_P_IPV6;
	unsigned prio = a->type == ADDR_IPV6 ? PRIO_U32_IPV6 : PRIO_U32_IPV4;
	uint32_t bucket = (a->type == ADDR_IPV6 ? table_v6 : table_v4) | (uint32_t)a->bytes[last] << 12;
	struct u32_key keys[4];
	struct nlmsghdr *nlh;
	unsigned n = 0;

	nlh = filter_put(buf, w, type, flags, prio, protocol, bucket | (1 + id + at * POLICY_CLIENTS_MAX), "u32");
	if (a->type == ADDR_MAC) {
		keys[n++] = (struct u32_key){ MAC_HIGH_OFFSET, 0xffff, a->bytes[0] << 8 | a->bytes[1] };
		keys[n++] = (struct u32_key){ MAC_LOW_OFFSET, 0xffffffff, word(a->bytes + 2) };
	} else if (a->type == ADDR_IPV4) {
		keys[n++] = (struct u32_key){ IPV4_DST_OFFSET, 0xffffffff, word(a->bytes) };
	} else {
		for (; n < 4; n++)
			keys[n] = (struct u32_key){ IPV6_DST_OFFSET + 4 * n, 0xffffffff, word(a->bytes + 4 * n) };
	}
	u32_put(nlh, HTB_CLASS_CLIENT(id), bucket, keys, n);
	return nlh;
}

/* DSCP EF (RFC 3246) and VOICE-ADMIT (RFC 5865) go to the voice class. */
static int voice_setup(struct wifirr *w, char *why, size_t size)
{
	static const uint8_t dscp[] = { 46, 44 };
	char buf[512] __attribute__((aligned(NLMSG_ALIGNTO)));

	for (unsigned i = 0; i < sizeof(dscp) * 2; i++) {
		uint32_t tos = dscp[i / 2] << 2;
		bool v6 = i & 1;
		struct u32_key key = v6 ? (struct u32_key){ 0, 0x0fc00000, tos << 20 } :
			(struct u32_key){ 0, 0x00fc0000, tos << 16 };
		struct nlmsghdr *nlh = filter_put(buf, w, RTM_NEWTFILTER, NLM_F_CREATE | NLM_F_EXCL,
						  v6 ? PRIO_VOICE_IPV6 : PRIO_VOICE_IPV4,
						  v6 ? ETH_P_IPV6 : ETH_P_IP, 0, "u32");
		int rc;

		u32_put(nlh, HTB_CLASS_VOICE, 0, &key, 1);
		rc = rtnl_request(cl.nl, nlh, why, size);
		if (rc < 0)
			return rc;
	}
	return 0;
}

/* Without options, a filter fw uses the mark itself as class id. */
static int fw(struct wifirr *w, int type, unsigned flags, char *why, size_t size)
{
	char buf[256] __attribute__((aligned(NLMSG_ALIGNTO))) = { 0 };	/* as in nft_ask() */

	return rtnl_request(cl.nl, filter_put(buf, w, type, flags, PRIO_FW, ETH_P_ALL, 0, "fw"), why, size);
}

struct offload {
	bool hardware, software;
};

static int flowtable(const struct nlmsghdr *nlh, void *data)
{
	const struct nlattr *tb[NFTA_FLOWTABLE_FLAGS + 1];
	struct offload *offload = data;

	if (!netlink_parse(nlh, sizeof(struct nfgenmsg), tb, NFTA_FLOWTABLE_FLAGS))
		return MNL_CB_OK;
	if (ntohl(nl80211_u32(tb[NFTA_FLOWTABLE_FLAGS])) & NFT_FLOWTABLE_HW_OFFLOAD)
		offload->hardware = true;
	else
		offload->software = true;
	return MNL_CB_OK;
}

/*
 * Offloaded packets bypass the qdisc: hardware offload bypasses every qdisc,
 * software offload sends straight from the port below a bridge.
 */
void classify_warn_offload(struct wifirr *w)
{
	struct offload offload = { false, false };

	if (w->weights_idle)
		return;		/* a warning of its own */
	w->warning[0] = '\0';
	nft_ask(NFT_MSG_GETFLOWTABLE, NFPROTO_UNSPEC, NULL, flowtable, &offload);
	if (offload.hardware)
		snprintf(w->warning, sizeof(w->warning), "hardware flow offload is on: offloaded traffic bypasses the scheduler "
			 "(uci set firewall.@defaults[0].flow_offloading_hw=0)");
	else if (offload.software && device_has(w->config.device, "bridge"))
		snprintf(w->warning, sizeof(w->warning), "software flow offload is on: offloaded traffic bypasses a bridge's scheduler; "
			 "schedule the wireless device itself");
}

int classify_start(struct wifirr *w, struct mnl_socket *nl, char *reason, size_t size)
{
	char why[128];

	cl.nl = nl;
	name_table(w->config.device);
	if (w->config.exempt_voice && voice_setup(w, why, sizeof(why)) < 0) {
		snprintf(reason, size, "--exempt-voice: filter u32: %s", why);
		return -1;
	}
	if (fw(w, RTM_NEWTFILTER, NLM_F_CREATE | NLM_F_EXCL, why, sizeof(why)) < 0) {
		logmsg(LOG_INFO, "classifying with u32: filter fw: %s", why);
	} else if (nft_setup(w, why, sizeof(why)) < 0) {
		logmsg(LOG_INFO, "classifying with u32: %s", why);
		classify_remains(w);	/* an nft that was killed may have made the table */
		fw(w, RTM_DELTFILTER, 0, NULL, 0);	/* it would take small marks of other programs (mwan3) for classes */
	} else {
		cl.by = NFT;
		return 0;
	}
	if (u32_setup(w, why, sizeof(why)) < 0) {
		snprintf(reason, size, "the kernel has neither nft's netdev egress hook with filter fw, nor filter u32 (%s)", why);
		return -1;
	}
	cl.by = U32;
	return 0;
}

const char *classify_name(void)
{
	return cl.by == NFT ? "nft" : cl.by == U32 ? "u32" : "none";
}

static int classify(struct wifirr *w, uint16_t id, const struct addr *a, unsigned at, bool there, char *why, size_t size)
{
	static const char *const map[] = { [ADDR_MAC] = "mac", [ADDR_IPV4] = "ipv4", [ADDR_IPV6] = "ipv6" };
	char buf[512] __attribute__((aligned(NLMSG_ALIGNTO)));
	char text[ADDR_TEXT];
	int rc;

	if (cl.by == NFT)
		return script_add("%s element netdev %s %s { %s : 0x%08x }\n", there ? "add" : "delete", cl.table, map[a->type],
				  addr_text(a, text), HTB_CLASS_CLIENT(id));
	rc = rtnl_request(cl.nl, u32_client(buf, w, id, a, at, there ? RTM_NEWTFILTER : RTM_DELTFILTER,
					    there ? NLM_F_CREATE | NLM_F_EXCL : 0), why, size);
	return there ? rc : 0;
}

int classify_also(struct wifirr *w, uint16_t id, unsigned at, bool there, char *why, size_t size)
{
	return classify(w, id, &w->station[id].also[at], at + 1, there, why, size);
}

int classify_client(struct wifirr *w, uint16_t id, bool there, char *why, size_t size)
{
	const struct station *s = &w->station[id];
	int rc = classify(w, id, &s->addr, 0, there, why, size);

	for (unsigned at = 0; at < ALSO_MAX && rc >= 0; at++)
		if (s->also_used & 1 << at)
			rc = classify_also(w, id, at, there, why, size);
	return rc;
}

static void nft_finished(struct wifirr *w)
{
	if (!nft_said_all())
		return;
	watch_del(&run.out);
	if (nft_end() < 0)
		logmsg(LOG_WARNING, "nft: %s", run.said);
	else if (classify_flush() == 0)	/* changes collected meanwhile */
		return;
	backend_lost(w, "classification");
}

int classify_flush(void)
{
	uint64_t now = now_ms();
	int rc;

	/*
	 * Another program has deleted our table, chain or rules: "flush ruleset" and the like. It has to be asked for:
	 * for a program that listens to nf_tables' events, the kernel keeps a page for each element that any program
	 * loads into a set, until all are loaded.
	 */
	if (cl.by == NFT && now - cl.looked_at >= LOOK_MS) {
		cl.looked_at = now;
		if (nft_has(NFT_MSG_GETRULE) == 0)
			return -1;
	}
	/* a killed nft closes its output, which calls nft_finished() */
	if (run.pid && now >= run.until)
		kill(run.pid, SIGKILL);
	if (!cl.script_len || run.pid)
		return 0;
	rc = nft_begin(cl.script, cl.script_len, false);
	script_free();
	if (rc < 0) {
		logmsg(LOG_WARNING, "nft: %s", strerror(errno));
		return rc;
	}
	run.out.readable = nft_finished;
	return watch_add(&run.out);
}

void classify_stop(void)
{
	if (cl.by == NFT)
		nft_remove();
	script_free();
	memset(&cl, 0, sizeof(cl));
}
