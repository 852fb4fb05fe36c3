"""What a value is: types, how they are written, checked, stored and handed out."""
