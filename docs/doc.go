// Package docs holds the Markdown pages of rehop, and has no code but their tests.
package docs
