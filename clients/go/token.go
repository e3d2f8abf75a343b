package drover

import (
	"context"
	"net/http"
)

// Token sends this API token with every request.
func Token(token string) RequestEditorFn {
	return func(_ context.Context, request *http.Request) error {
		request.Header.Set("Authorization", "Bearer "+token)
		return nil
	}
}
