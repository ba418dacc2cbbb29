// Package versions runs programs of two versions side by side, as a roll-out does: on one
// queue, one outbox and one journal. One is built from this tree, the other from the commit
// in baseline.txt. What they share are headers of messages, the wiring on the broker, the
// tables of the store and the files of the desk.
//
// Until the first release a change of these may move the baseline: to the commit that makes
// the change, in the commit after it. From the first release on the baseline is a release.
package versions
