from oarlock_local.launch import remedy


def test_a_machine_without_inotify_instances_is_told_what_to_do() -> None:
    words = '\n  node-1-kubelet.log: "Failed to start cAdvisor" err="inotify_init: too many open files"'
    assert "fs.inotify.max_user_instances" in remedy(words)
    assert "oarlock-local status" in remedy(words)


def test_other_last_words_stand_for_themselves() -> None:
    assert remedy('\n  node-1-kubelet.log: "Eviction manager: failed"') == ""
