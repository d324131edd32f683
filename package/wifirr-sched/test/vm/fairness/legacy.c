// SPDX-License-Identifier: Apache-2.0
/*
 * Until it is removed, a radio of mac80211_hwsim seems to be one of rt2500pci, with two
 * queues and without 802.11n. With such a driver, Linux associates without WMM.
 *
 *	ip netns exec sta0 insmod legacy.ko device=wlan0
 */
#include <linux/module.h>
#include <linux/netdevice.h>
#include <linux/nsproxy.h>
#include <linux/sched.h>
#include <net/cfg80211.h>
#include <net/mac80211.h>

static char *device = "wlan0";
module_param(device, charp, 0);

static struct ieee80211_hw *hw;
static u16 own_queues;

static bool *has_80211n(void)
{
	return &hw->wiphy->bands[NL80211_BAND_2GHZ]->ht_cap.ht_supported;
}

static int __init legacy_init(void)
{
	struct net_device *dev = dev_get_by_name(current->nsproxy->net_ns, device);

	if (!dev)
		return -ENODEV;
	if (!dev->ieee80211_ptr) {
		dev_put(dev);
		return -EINVAL;
	}
	hw = wiphy_to_ieee80211_hw(dev->ieee80211_ptr->wiphy);
	own_queues = hw->queues;
	hw->queues = 2;
	*has_80211n() = false;
	dev_put(dev);
	return 0;
}

static void __exit legacy_exit(void)
{
	hw->queues = own_queues;
	*has_80211n() = true;
}

module_init(legacy_init);
module_exit(legacy_exit);
MODULE_LICENSE("Apache-2.0");
MODULE_DESCRIPTION("Test helper: a station without WMM on mac80211_hwsim");
