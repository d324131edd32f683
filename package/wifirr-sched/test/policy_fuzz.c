/* SPDX-License-Identifier: Apache-2.0 */
/* libFuzzer: the input is a program of calls to the policy. */
#include <stdlib.h>
#include <string.h>

#include "policy.h"

static const uint8_t *at, *end;

static uint8_t byte(void)
{
	return at < end ? *at++ : 0;
}

static uint32_t number(void)
{
	uint32_t n = 0;

	for (unsigned i = 0; i < 4; i++)
		n = n << 8 | byte();
	return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct policy p;
	struct policy_config config;
	char why[64];
	uint64_t now = 0;
	uint16_t id;

	at = data;
	end = data + size;
	policy_defaults(&config, byte() & 1, byte() & 1);
	policy_init(&p, &config);
	while (at < end) {
		switch (byte() % 8) {
		case 0: policy_add(&p, byte() & 3); break;
		case 1:
			id = number() % POLICY_CLIENTS_MAX;
			if (p.client[id].used)
				policy_del(&p, id);
			break;
		case 2:
			policy_sample(&p, byte(), number(), (uint64_t)number() << (byte() & 32));
			policy_received(&p, byte(), (uint64_t)number() << (byte() & 32));
			break;
		case 3: policy_set_flags(&p, byte(), byte() & 7); break;
		case 4: policy_pause(&p, byte() & 1); break;
		case 5:
			config = (struct policy_config){
				.mode = byte() & 1, .engage = byte() % 3,
				.active = 1 + number() % POLICY_CLIENTS_MAX, .slot_ms = 10 + number() % 59991,
				.demand_bytes = number(), .demand_bps = number(), .busy_permille = number(),
				.engage_delay_ms = number(), .tick_ms = 1 + byte(), .idle_tick_ms = 1 + number() / 2,
				.next_lead_ms = number(), .soon_lead_ms = byte(),
			};
			policy_configure(&p, &config);
			break;
		case 6: now = (uint64_t)number() << (byte() & 31); /* fall through */
		default:
			now += byte();
			if (policy_tick(&p, now, (int)number()) < p.now || p.active > 2 * p.config.active)
				abort();
			policy_explain(&p, why, sizeof(why));
			for (id = 0; id < POLICY_CLIENTS_MAX; id++) {
				uint16_t weight = policy_weight(&p, id, 384, 1);

				if (p.client[id].level != POLICY_OPEN && !policy_weight_possible(weight, 384, 1))
					abort();
			}
		}
	}
	return 0;
}
